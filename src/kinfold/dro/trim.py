"""Trim: the mean of all losses but the K largest, for pairs with wrong labels."""

import torch
from torch import Tensor

from kinfold.dro.uncertainty import UncertaintySet, resolve_count
from kinfold.pairs.masks import mask_out


class Trim(UncertaintySet):
    """The best case over all p with 0 <= p <= 1/(n - k) and sum 1:  p = 1/(n - k) on the n - k smallest losses.

    F = (1/(n - k)) sum of the n - k smallest, a trimmed mean. Where a group has k losses or fewer, the smallest counts
    alone. It is the optimistic dual of `TopK`: the largest losses, which wrong labels cause, have no weight.

    Args:
        k: Number of losses to leave out, or a string such as "2b" for twice the number of anchors, which only `Robust`
            resolves.

    Examples:
        >>> Trim(1).weights(torch.tensor([0.1, 0.9, 0.5]))
        tensor([0.5000, 0.0000, 0.5000])
    """

    def __init__(self, k: int | str) -> None:
        resolve_count(k, 1)
        self.k = k

    def for_batch(self, anchors: int, entries_per_pair: float) -> "Trim":
        return Trim(max(1, int(resolve_count(self.k, anchors) * entries_per_pair)))

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        if isinstance(self.k, str):
            raise ValueError(f"k={self.k!r} depends on the number of anchors: use the set in Robust, or pass a number")
        width = min(self.k, losses.shape[-1])
        largest = mask_out(losses, mask).topk(width, dim=-1).indices
        entries = mask.sum(dim=-1, keepdim=True)
        is_left_out = torch.arange(width, device=losses.device) < (entries - 1).clamp(min=0, max=self.k)
        kept = mask & ~torch.zeros_like(mask).scatter(-1, largest, is_left_out)
        return kept / kept.sum(dim=-1, keepdim=True).clamp(min=1).to(losses.dtype)
