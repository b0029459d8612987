"""The embedding bank: the latest embedding of every item."""

from typing import Any

import torch
from torch import Tensor


class EmbeddingBank:
    """A table with one embedding per item, on the CPU. The first write sets its width and precision.

    Args:
        size: N, the number of items.

    Attributes:
        table: (N, D), or None before the first write.
        is_written: Whether each row was written, (N,).
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.table: Tensor | None = None
        self.is_written = torch.zeros(size, dtype=torch.bool)

    @property
    def is_complete(self) -> bool:
        return self.table is not None and bool(self.is_written.all())

    def read_all(self) -> Tensor:
        """Return the whole table (N, D); ValueError if a row was never written."""
        if self.table is None or not self.is_complete:
            missing = int((~self.is_written).sum())
            raise ValueError(
                f"the embeddings of {missing} of {self.size} items are not known yet; embed the whole training set "
                "once and give it to sampler.update(indices, embeddings) before the first epoch"
            )
        return self.table

    @torch.no_grad()
    def write(self, indices: Tensor, embeddings: Tensor) -> None:
        """Overwrite rows; if an item comes several times, its last embedding counts."""
        index = torch.as_tensor(indices).detach().cpu()
        value = torch.as_tensor(embeddings).detach().cpu()
        value = value if value.dtype == torch.float64 else value.float()
        if value.dim() != 2 or index.shape != value.shape[:1]:
            raise ValueError(
                f"need indices (B,) and embeddings (B, D), got {tuple(index.shape)} and {tuple(value.shape)}"
            )
        if index.shape[0] == 0:
            return
        if index.dtype == torch.bool or index.is_floating_point():
            raise ValueError(f"indices must be integers, got {index.dtype}; use the dataset indices of the batch")
        if int(index.min()) < 0 or int(index.max()) >= self.size:
            raise ValueError(
                f"indices must lie in 0..{self.size - 1}, the positions in the labels, "
                f"got {int(index.min())}..{int(index.max())}"
            )
        if not bool(value.isfinite().all()):
            raise ValueError("embeddings must be finite, got NaN or infinity; look at the training step they come from")
        if self.table is None:
            self.table = torch.zeros(self.size, value.shape[1], dtype=value.dtype)
        if value.shape[1] != self.table.shape[1]:
            raise ValueError(f"the bank holds {self.table.shape[1]} dimensions, got {value.shape[1]}")
        # numpy keeps the last of repeated indices; torch leaves it open
        self.table.numpy()[index.numpy()] = value.numpy()
        self.is_written[index.long()] = True

    def state_dict(self) -> dict[str, Any]:
        return {"embeddings": self.table, "known": self.is_written}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        table, is_written = state["embeddings"], state["known"]
        if is_written.shape != (self.size,) or (table is not None and table.shape[0] != self.size):
            raise ValueError(
                f"the saved bank has {is_written.shape[0]} items, this one {self.size}; use the same labels"
            )
        self.table = None if table is None else table.detach().cpu().clone()
        self.is_written = is_written.cpu().clone()
