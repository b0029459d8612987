"""Top-K: the mean of the K largest losses, also known as conditional value at risk."""

from typing import Literal

import torch
from torch import Tensor

from kinfold.dro.stream import TopKSolver
from kinfold.dro.uncertainty import UncertaintySet, resolve_count
from kinfold.pairs.masks import mask_out


class TopK(UncertaintySet):
    """All p with 0 <= p <= 1/k and sum 1:  p = 1/k on the k largest losses; on all of them if there are fewer.

    F = (1/k) sum of the k largest = min over v of v + (1/k) sum [l - v]+

    Args:
        k: Number of losses, or a string such as "2b" for twice the number of anchors, which only `Robust` resolves.
        divide: "k" divides by k, zeros among the k largest included; "nonzero" divides by the losses that are not zero.

    Examples:
        >>> TopK(2).weights(torch.tensor([0.1, 0.9, 0.5]))
        tensor([0.0000, 0.5000, 0.5000])
    """

    def __init__(self, k: int | str, divide: Literal["k", "nonzero"] = "k") -> None:
        if divide not in ("k", "nonzero"):
            raise ValueError(f"divide must be 'k' or 'nonzero', got {divide!r}")
        resolve_count(k, 1)
        self.k = k
        self.divide: Literal["k", "nonzero"] = divide

    def for_batch(self, anchors: int, entries_per_pair: float) -> "TopK":
        return TopK(max(1, int(resolve_count(self.k, anchors) * entries_per_pair)), self.divide)

    def value(self, losses: Tensor, mask: Tensor | None = None, limit: Tensor | None = None) -> Tensor:
        """Return F (...).

        Args:
            losses: (..., n).
            mask: Which losses exist, boolean (..., n).
            limit: Lowers k for single groups, (...).
        """
        if losses.shape[-1] == 0:
            return losses.sum(dim=-1)
        top, is_counted = self._find_top(losses, mask, limit)
        values = torch.where(is_counted, top.values, 0.0)
        return values.sum(dim=-1) / self._divisor(values, is_counted).squeeze(-1)

    def make_solver(self, copies: int) -> TopKSolver:
        return TopKSolver(self._number(), lambda losses, k: TopK(k, self.divide).weights(losses), copies)

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        top, is_counted = self._find_top(losses, mask, None)
        share = is_counted / self._divisor(torch.where(is_counted, top.values, 0.0), is_counted)
        return torch.zeros_like(losses).scatter(-1, top.indices, share)

    def _find_top(
        self, losses: Tensor, mask: Tensor | None, limit: Tensor | None
    ) -> tuple["torch.return_types.topk", Tensor]:
        """The k largest losses, and which of them count."""
        width = min(self._number(), losses.shape[-1])
        top = (losses if mask is None else mask_out(losses, mask)).topk(width, dim=-1)
        rank = torch.arange(width, device=losses.device)
        is_counted = torch.ones_like(top.indices, dtype=torch.bool)
        if mask is not None:
            is_counted = rank < mask.sum(dim=-1, keepdim=True)
        return top, is_counted if limit is None else is_counted & (rank < limit.unsqueeze(-1))

    def _number(self) -> int:
        if isinstance(self.k, str):
            raise ValueError(f"k={self.k!r} depends on the number of anchors: use the set in Robust, or pass a number")
        return self.k

    def _divisor(self, values: Tensor, is_counted: Tensor) -> Tensor:
        divided = is_counted & (values != 0) if self.divide == "nonzero" else is_counted
        return divided.sum(dim=-1, keepdim=True).clamp(min=1).to(values.dtype)
