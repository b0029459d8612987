"""Top-K: the mean of the K largest losses, also known as the conditional value at risk."""

from typing import Literal

import torch
from torch import Tensor

from kinfold.dro.uncertainty import UncertaintySet, number_of_entries
from kinfold.pairs.masks import lowered


class TopK(UncertaintySet):
    """All p with 0 <= p <= 1/k and sum 1:  p = 1/k on the k largest losses; on all of them where there are fewer.

    F = (1/k) sum of the k largest = min over v of v + (1/k) sum [l - v]+

    Zeros among the k largest count in the divisor; `divide="nonzero"` divides by the losses that are not zero.
    `k="2b"` is for use in `Robust`: twice the number of anchors.

    >>> TopK(2).weights(torch.tensor([0.1, 0.9, 0.5]))
    tensor([0.0000, 0.5000, 0.5000])
    """

    def __init__(self, k: int | str, divide: Literal["k", "nonzero"] = "k") -> None:
        if divide not in ("k", "nonzero"):
            raise ValueError(f"divide must be 'k' or 'nonzero', got {divide!r}")
        number_of_entries(k, 1)
        self.k = k
        self.divide: Literal["k", "nonzero"] = divide

    def for_batch(self, anchors: int, entries_per_pair: float) -> "TopK":
        return TopK(max(1, int(number_of_entries(self.k, anchors) * entries_per_pair)), self.divide)

    def value(self, losses: Tensor, mask: Tensor | None = None, limit: Tensor | None = None) -> Tensor:
        """F (...); `limit` (...) may lower k group by group."""
        if losses.shape[-1] == 0:
            return losses.sum(dim=-1)
        found, taken = self._largest(losses, mask, limit)
        values = torch.where(taken, found.values, 0.0)
        return values.sum(dim=-1) / self._divisor(values, taken).squeeze(-1)

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        found, taken = self._largest(losses, mask, None)
        share = taken / self._divisor(torch.where(taken, found.values, 0.0), taken)
        return torch.zeros_like(losses).scatter(-1, found.indices, share)

    def _largest(
        self, losses: Tensor, mask: Tensor | None, limit: Tensor | None
    ) -> tuple["torch.return_types.topk", Tensor]:
        if isinstance(self.k, str):
            raise ValueError(f"k={self.k!r} depends on the number of anchors: use the set in Robust, or give a number")
        width = min(self.k, losses.shape[-1])
        found = (losses if mask is None else lowered(losses, mask)).topk(width, dim=-1)
        place = torch.arange(width, device=losses.device)
        taken = torch.ones_like(found.indices, dtype=torch.bool)
        if mask is not None:
            taken = place < mask.sum(dim=-1, keepdim=True)
        return found, taken if limit is None else taken & (place < limit.unsqueeze(-1))

    def _divisor(self, values: Tensor, taken: Tensor) -> Tensor:
        counted = taken & (values != 0) if self.divide == "nonzero" else taken
        return counted.sum(dim=-1, keepdim=True).clamp(min=1).to(values.dtype)
