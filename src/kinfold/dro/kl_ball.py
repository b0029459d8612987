"""KL ball: weights within a Kullback-Leibler divergence of uniform."""

import torch
from torch import Tensor

from kinfold.dro.stream import Solver
from kinfold.dro.tilt_stream import TiltSolver
from kinfold.dro.uncertainty import UncertaintySet, check_radius, find_largest, limit_effective, resolve_count
from kinfold.pairs.transforms import is_transformed

_STEPS = 120


class KLBall(UncertaintySet):
    """All p with KL(p || uniform) <= radius (the radius itself, not radius / n):  p = softmax(l / t).

    The temperature t is computed by bisection, for all groups at once.

    Args:
        radius: Radius of the ball. Pass either `radius` or `effective`.
        effective: Sets the radius to log(n / effective): as concentrated as that many equal weights, for any n. A
            number, or a string such as "4b" for 4 times the number of anchors, which only `Robust` resolves.

    Examples:
        >>> KLBall(effective=1).weights(torch.tensor([1.0, 0.5]))
        tensor([1., 0.])
    """

    def __init__(self, radius: float | None = None, effective: float | str | None = None) -> None:
        check_radius(effective, radius)
        self.radius = radius
        self.effective = effective

    def for_batch(self, anchors: int, entries_per_pair: float) -> "KLBall":
        if self.effective is None:
            return self
        return KLBall(effective=resolve_count(self.effective, anchors))

    def compute_bound(self, count: Tensor) -> Tensor:
        """Return the bound on KL for groups of `count` entries."""
        count = count.double().clamp(min=1)
        if self.radius is not None:
            return torch.full_like(count, self.radius)
        return (count / limit_effective(self.effective, count)).log()

    def make_solver(self, copies: int) -> Solver:
        return TiltSolver(None, copies, bound=lambda count: float(self.compute_bound(torch.tensor(count))))

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        is_largest, num_largest = find_largest(losses, mask)
        count = mask.sum(dim=-1, keepdim=True)
        bound = self.compute_bound(count)
        exact = losses.double().masked_fill(~mask, -torch.inf)
        below = (exact - exact.amax(dim=-1, keepdim=True).clamp(min=-1e300)).masked_fill(~mask, 0.0)
        scale = (-below.sum(dim=-1, keepdim=True) / count.clamp(min=1)).clamp(min=1e-300).log()
        low, high = scale - 60.0, scale + 30.0  # bounds of log t
        size = count.clamp(min=1).double().log()
        for _ in range(_STEPS):
            middle = (low + high) / 2
            too_sharp = _divergence(below, mask, middle.exp(), size) > bound
            low, high = torch.where(too_sharp, middle, low), torch.where(too_sharp, high, middle)
            if not is_transformed() and bool((high - low < 1e-13).all()):
                break
        weights = torch.softmax((below / high.exp()).masked_fill(~mask, -1e300), dim=-1)
        weights = torch.where(bound <= 0.0, mask / count.clamp(min=1).double(), weights)  # the limit of large t
        is_corner = bound >= (count.clamp(min=1) / num_largest.clamp(min=1)).double().log() * (1 - 1e-15)
        return torch.where(is_corner, is_largest / num_largest.clamp(min=1).double(), weights).to(losses.dtype)


def _divergence(below: Tensor, mask: Tensor, temperature: Tensor, size: Tensor) -> Tensor:
    """KL(softmax(l / t) || uniform) of each group, (..., 1)."""
    scaled = (below / temperature).masked_fill(~mask, -1e300)
    share = torch.softmax(scaled, dim=-1)
    level = torch.logsumexp(scaled, dim=-1, keepdim=True)
    mean = torch.where(mask & (share > 0), share * scaled, 0.0).sum(dim=-1, keepdim=True)
    return mean - level + size
