"""Embeddings of earlier batches, as a reference set for any loss (cross-batch memory; Wang et al., CVPR 2020)."""

from typing import Any, TypedDict

import torch
from torch import Tensor, nn


class ReferenceSet(TypedDict):
    """Keyword arguments of a loss or a miner that describe a reference set."""

    ref_embeddings: Tensor
    ref_labels: Tensor
    ref_ids: Tensor | None


class CrossBatchMemory(nn.Module):
    """Ring buffer of the last `size` embeddings with their labels and ids; all of it is in `state_dict`.

    Call `update` before the loss and pass `ids`: the loss then leaves out the pair of an anchor with itself.

    Args:
        size: Number of embeddings that are kept.
        dim: Dimension of the embeddings. By default that of the first update.

    Examples:
        >>> memory = CrossBatchMemory(size=6)
        >>> batch, labels, ids = torch.eye(4), torch.tensor([0, 0, 1, 1]), torch.arange(4)
        >>> memory.update(batch, labels, ids)
        >>> memory.reference()["ref_labels"]
        tensor([0, 0, 1, 1])
    """

    embeddings: Tensor
    labels: Tensor
    ids: Tensor
    position: Tensor
    fill: Tensor
    has_ids: Tensor

    def __init__(self, size: int, dim: int | None = None) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self.size = size
        self.register_buffer("embeddings", torch.zeros(size, dim or 0))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("ids", torch.full((size,), -1, dtype=torch.int64))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self.register_buffer("fill", torch.zeros((), dtype=torch.int64))
        self.register_buffer("has_ids", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Write a batch over the oldest entries. Of a batch larger than the memory the last rows are kept.

        Args:
            embeddings: (B, d); stored without gradient.
            labels: (B,).
            ids: (B,), one number per item. Pass them with every update or with none.

        Raises:
            ValueError: Shapes do not fit, the dimension changed, or only some updates have ids.
        """
        count = embeddings.shape[0]
        if labels.shape != (count,) or (ids is not None and ids.shape != (count,)):
            raise ValueError(f"labels and ids must have shape ({count},), one per row of embeddings")
        if count == 0:
            return
        if int(self.fill) == 0:
            self.has_ids.fill_(ids is not None)
            if self.embeddings.shape[1] == 0:
                self.embeddings = self.embeddings.new_zeros(self.size, embeddings.shape[1])
            self.embeddings = self.embeddings.to(embeddings.dtype)
        elif bool(self.has_ids) != (ids is not None):
            raise ValueError("only some updates of this memory have ids: pass ids with every update or with none")
        if embeddings.shape[1] != self.embeddings.shape[1]:
            raise ValueError(f"the memory holds {self.embeddings.shape[1]} dimensions, got {embeddings.shape[1]}")
        kept = min(count, self.size)
        slots = (self.position + torch.arange(count - kept, count, device=self.position.device)) % self.size
        self.embeddings[slots] = embeddings[-kept:].detach().to(self.embeddings)
        self.labels[slots] = labels[-kept:].to(self.labels)
        if ids is not None:
            self.ids[slots] = ids[-kept:].to(self.ids)
        self.position.copy_((self.position + count) % self.size)
        self.fill.copy_((self.fill + count).clamp(max=self.size))

    def reference(self) -> ReferenceSet:
        """Return the stored entries as keyword arguments: `loss(embeddings, labels, ids=ids, **memory.reference())`."""
        filled = slice(0, int(self.fill))
        return {
            "ref_embeddings": self.embeddings[filled],
            "ref_labels": self.labels[filled],
            "ref_ids": self.ids[filled] if bool(self.has_ids) or len(self) == 0 else None,
        }

    def __len__(self) -> int:
        return int(self.fill)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # a saved memory has a dimension and a dtype; a new one may not have them yet
        saved = state_dict.get(prefix + "embeddings")
        if (
            isinstance(saved, Tensor)
            and saved.shape[0] == self.size
            and self.embeddings.shape[1] in (0, saved.shape[1])
        ):
            self.embeddings = self.embeddings.new_zeros(saved.shape, dtype=saved.dtype)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
