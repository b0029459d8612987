"""Chi-square ball: weights whose squared length is bounded; in its interior the value is mean plus deviation."""

import torch
from torch import Tensor

from kinfold.dro.uncertainty import UncertaintySet, check_radius, number_of_entries, ties_of_the_largest


class ChiSquare(UncertaintySet):
    """All p >= 0 with sum 1 and (n/2) sum (p - 1/n)^2 <= radius / n, that is |p|^2 <= (1 + 2 radius/n) / n.

    `effective=K` bounds |p|^2 by 1/K instead: as concentrated as K equal weights, whatever n is.

    While all weights stay positive, F = mean + sqrt(2 radius Var / n) with the population variance; elsewhere that
    formula over-estimates. The weights are [l - eta]+ / sum [l - eta]+; the support comes from one sort and prefix sums
    in float64, the weights from an exact second pass over it: O(n log n).

    >>> ChiSquare(effective=2).weights(torch.tensor([3.0, 3.0, 0.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """

    def __init__(self, radius: float | None = None, effective: float | str | None = None) -> None:
        check_radius(effective, radius)
        self.radius = radius
        self.effective = effective

    def for_batch(self, anchors: int, entries_per_pair: float) -> "ChiSquare":
        if self.effective is None:
            return self
        return ChiSquare(effective=number_of_entries(self.effective, anchors))

    def bound(self, count: Tensor) -> Tensor:
        """The bound on |p|^2 for groups of `count` entries."""
        count = count.double().clamp(min=1)
        if self.radius is not None:
            return (1.0 + 2.0 * self.radius / count) / count
        assert self.effective is not None
        if isinstance(self.effective, str):
            raise ValueError(f"effective={self.effective!r} depends on the number of anchors: use the set in Robust")
        return 1.0 / torch.minimum(count, torch.full_like(count, self.effective))

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        ties, tied = ties_of_the_largest(losses, mask)
        count = mask.sum(dim=-1, keepdim=True)
        bound = self.bound(count)
        exact = losses.double().masked_fill(~mask, -torch.inf)
        exact = exact - exact.amax(dim=-1, keepdim=True).clamp(min=-1e300)  # the largest is zero: sums lose no digits
        ordered, order = exact.sort(dim=-1, descending=True)
        ordered = ordered.masked_fill(ordered == -torch.inf, 0.0)
        support = _support(ordered, count, bound)
        inside = torch.arange(ordered.shape[-1], device=losses.device) < support
        mean = (ordered * inside).sum(dim=-1, keepdim=True) / support
        spread = torch.where(inside, ordered - mean, 0.0)
        variation = spread.square().sum(dim=-1, keepdim=True)
        slope = ((bound - 1.0 / support).clamp(min=0.0) / variation.clamp(min=1e-300)).sqrt()
        weights = torch.where(inside, (1.0 / support + slope * spread).clamp(min=0.0), 0.0)
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-300)
        weights = torch.zeros_like(weights).scatter(-1, order, weights)
        # a ball that reaches the corner of the simplex, or losses that are all equal
        corner = bound * tied >= 1.0
        return torch.where(corner, ties / tied.clamp(min=1).double(), weights).to(losses.dtype)


def _support(ordered: Tensor, count: Tensor, bound: Tensor) -> Tensor:
    """(..., 1) how many of the largest losses get weight.

    At eta = l_{s+1} the first s have weight, and |p|^2 = sum (l - eta)^2 / (sum (l - eta))^2 falls as s grows: the
    first s at which it is within the bound.
    """
    place = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device, dtype=torch.float64)
    first, second = ordered.cumsum(dim=-1), ordered.square().cumsum(dim=-1)
    eta = torch.cat([ordered[..., 1:], ordered[..., -1:]], dim=-1)
    total = first - place * eta
    square = second - 2.0 * eta * first + place * eta.square()
    within = (square <= bound * total.square()) & (total > 0) & (place < count)
    found = within.to(torch.uint8).argmax(dim=-1, keepdim=True) + 1
    return torch.where(within.any(dim=-1, keepdim=True), found, count.clamp(min=1)).double()
