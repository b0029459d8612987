"""Nested dimensions: a loss of several prefixes of the embedding, so that it can be cut to each (Matryoshka)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinfold import registry
from kinfold.losses.loss import Loss
from kinfold.losses.mined import Mined
from kinfold.pairs import Labels


class Nested(nn.Module):
    """The weighted mean of a loss over prefixes of the embeddings.

    value = sum_d w_d loss(embeddings[:, :d]) / sum_d w_d. Each prefix is then an embedding of its own, which search and
    storage can cut to. Proxies are cut in the same way, so that all prefixes share one set of class vectors; a miner
    selects for each prefix anew. Paper: Kusupati et al., Matryoshka representation learning, NeurIPS 2022.

    Args:
        loss: Any loss, with or without a miner, or its registered name.
        dims: Lengths of the prefixes, ascending. The last is the whole embedding, or less.
        weights: One weight for each prefix; all equal if left out.

    Raises:
        ValueError: Lengths or weights are not valid.

    Examples:
        >>> import torch
        >>> nested = Nested("multi-similarity", dims=[2, 4])
        >>> nested(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([])
    """

    def __init__(self, loss: Loss | Mined | str, dims: Sequence[int], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        self.loss: Loss | Mined = registry.create("losses", loss) if isinstance(loss, str) else loss
        if not dims or any(isinstance(dim, bool) or int(dim) != dim or dim < 1 for dim in dims):
            raise ValueError(f"dims are positive integers, at least one; got {[*dims]}")
        if [*dims] != sorted({*dims}):
            raise ValueError(f"dims must be ascending and different, got {[*dims]}; write {sorted({*dims})}")
        if weights is not None and len(weights) != len(dims):
            raise ValueError(f"{len(dims)} dims need as many weights, got {len(weights)}")
        if weights is not None and not (all(weight >= 0 for weight in weights) and sum(weights) > 0):
            raise ValueError(f"weights must not be negative, and not all zero; got {[*weights]}")
        self.dims = tuple(int(dim) for dim in dims)
        shares = [1.0] * len(dims) if weights is None else [float(weight) for weight in weights]
        self.weights = tuple(share / sum(shares) for share in shares)

    @property
    def proxies(self) -> nn.Parameter | None:
        """The proxies of the loss, (C, d) or (C, K, d), or None."""
        return None if isinstance(self.loss, Mined) else self.loss.proxies

    def forward(
        self,
        embeddings: Tensor,
        labels: Labels | None = None,
        *,
        relation: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        ref_labels: Labels | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted mean of the losses of all prefixes; arguments as in `Loss.forward`.

        Raises:
            ValueError: The embeddings have fewer dimensions than the longest prefix.
        """
        if embeddings.shape[-1] < self.dims[-1]:
            raise ValueError(f"the embeddings have {embeddings.shape[-1]} dimensions, fewer than dims {[*self.dims]}")
        options: dict[str, Any] = {
            "relation": relation,
            "ref_labels": ref_labels,
            "ids": ids,
            "ref_ids": ref_ids,
            "sample_weight": sample_weight,
        }
        values = []
        for dim, weight in zip(self.dims, self.weights, strict=True):
            references = None if ref_embeddings is None else ref_embeddings[:, :dim]
            arguments = {**options, "ref_embeddings": references}
            values.append(weight * self._call(embeddings[:, :dim], labels, arguments, dim))
        return torch.stack(values).sum(dim=0)

    def _call(self, embeddings: Tensor, labels: Labels | None, arguments: dict[str, Any], dim: int) -> Tensor:
        proxies = self.proxies
        if proxies is None:
            value: Tensor = self.loss(embeddings, labels, **arguments)
            return value
        parameters = {"proxies": proxies[..., :dim]}
        cut: Tensor = torch.func.functional_call(self.loss, parameters, (embeddings, labels), arguments)
        return cut
