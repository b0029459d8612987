"""Chi-square ball: weights of bounded squared length; the value is the mean plus a multiple of the deviation."""

import torch
from torch import Tensor

from kinfold.dro.chi_square_stream import ChiSquareSolver
from kinfold.dro.stream import Solver
from kinfold.dro.uncertainty import UncertaintySet, check_radius, find_largest, limit_effective, resolve_count


class ChiSquare(UncertaintySet):
    """All p >= 0 with sum 1 and (n/2) sum (p - 1/n)^2 <= radius / n, that is |p|^2 <= (1 + 2 radius/n) / n.

    While all weights are positive, F = mean + sqrt(2 radius Var / n) with the population variance; otherwise this
    formula overestimates F. The weights are [l - eta]+ / sum [l - eta]+. The support comes from one sort and prefix
    sums in
    float64, the weights from an exact second pass over the support: O(n log n).

    Args:
        radius: Radius of the ball. Pass either `radius` or `effective`.
        effective: Bounds |p|^2 by 1/effective: as concentrated as that many equal weights, for any n. A number, or a
            string such as "4b" for 4 times the number of anchors, which only `Robust` resolves.

    Examples:
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
        return ChiSquare(effective=resolve_count(self.effective, anchors))

    def compute_bound(self, count: Tensor) -> Tensor:
        """Return the bound on |p|^2 for groups of `count` entries."""
        count = count.double().clamp(min=1)
        if self.radius is not None:
            return (1.0 + 2.0 * self.radius / count) / count
        return 1.0 / limit_effective(self.effective, count)

    def make_solver(self, copies: int) -> Solver:
        return ChiSquareSolver(lambda count: float(self.compute_bound(torch.tensor(count))), copies)

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        is_largest, num_largest = find_largest(losses, mask)
        count = mask.sum(dim=-1, keepdim=True)
        bound = self.compute_bound(count)
        exact = losses.double().masked_fill(~mask, -torch.inf)
        exact = exact - exact.amax(dim=-1, keepdim=True).clamp(min=-1e300)  # the largest is zero: sums lose no digits
        ordered, order = exact.sort(dim=-1, descending=True)
        ordered = ordered.masked_fill(ordered == -torch.inf, 0.0)
        support = _count_support(ordered, count, bound)
        inside = torch.arange(ordered.shape[-1], device=losses.device) < support
        mean = (ordered * inside).sum(dim=-1, keepdim=True) / support
        deviation = torch.where(inside, ordered - mean, 0.0)
        variation = deviation.square().sum(dim=-1, keepdim=True)
        slope = ((bound - 1.0 / support).clamp(min=0.0) / variation.clamp(min=1e-300)).sqrt()
        weights = torch.where(inside, (1.0 / support + slope * deviation).clamp(min=0.0), 0.0)
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-300)
        weights = torch.zeros_like(weights).scatter(-1, order, weights)
        # the ball reaches the corner of the simplex, or all losses are equal
        is_corner = bound * num_largest >= 1.0
        return torch.where(is_corner, is_largest / num_largest.clamp(min=1).double(), weights).to(losses.dtype)


def _count_support(ordered: Tensor, count: Tensor, bound: Tensor) -> Tensor:
    """Number of the largest losses that get weight, (..., 1).

    At eta = l_{s+1} the first s have weight, and |p|^2 = sum (l - eta)^2 / (sum (l - eta))^2 falls as s grows. The
    result is the first s for which it is within the bound.
    """
    size = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device, dtype=torch.float64)
    first, second = ordered.cumsum(dim=-1), ordered.square().cumsum(dim=-1)
    eta = torch.cat([ordered[..., 1:], ordered[..., -1:]], dim=-1)
    total = first - size * eta
    square = second - 2.0 * eta * first + size * eta.square()
    within = (square <= bound * total.square()) & (total > 0) & (size < count)
    support = within.to(torch.uint8).argmax(dim=-1, keepdim=True) + 1
    return torch.where(within.any(dim=-1, keepdim=True), support, count.clamp(min=1)).double()
