"""KL ball: weights within a given Kullback-Leibler distance of uniform."""

import torch
from torch import Tensor

from kinfold.dro.uncertainty import UncertaintySet, check_radius, number_of_entries, ties_of_the_largest
from kinfold.pairs.transforms import is_transformed

_STEPS = 120


class KLBall(UncertaintySet):
    """All p with KL(p || uniform) <= radius (the radius itself, not radius / n):  p = softmax(l / t).

    `effective=K` sets the radius to log(n / K): as concentrated as K equal weights, whatever n is. The temperature t is
    found by bisection, for all groups at once.

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
        return KLBall(effective=number_of_entries(self.effective, anchors))

    def bound(self, count: Tensor) -> Tensor:
        """The bound on KL for groups of `count` entries."""
        count = count.double().clamp(min=1)
        if self.radius is not None:
            return torch.full_like(count, self.radius)
        assert self.effective is not None
        if isinstance(self.effective, str):
            raise ValueError(f"effective={self.effective!r} depends on the number of anchors: use the set in Robust")
        return (count / torch.minimum(count, torch.full_like(count, self.effective))).log()

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        ties, tied = ties_of_the_largest(losses, mask)
        count = mask.sum(dim=-1, keepdim=True)
        bound = self.bound(count)
        exact = losses.double().masked_fill(~mask, -torch.inf)
        below = (exact - exact.amax(dim=-1, keepdim=True).clamp(min=-1e300)).masked_fill(~mask, 0.0)
        scale = (-below.sum(dim=-1, keepdim=True) / count.clamp(min=1)).clamp(min=1e-300).log()
        low, high = scale - 60.0, scale + 30.0  # of log t
        size = count.clamp(min=1).double().log()
        for _ in range(_STEPS):
            middle = (low + high) / 2
            too_sharp = _divergence(below, mask, middle.exp(), size) > bound
            low, high = torch.where(too_sharp, middle, low), torch.where(too_sharp, high, middle)
            if not is_transformed() and bool((high - low < 1e-13).all()):
                break
        weights = _softmax(below / high.exp(), mask)
        corner = bound >= (count.clamp(min=1) / tied.clamp(min=1)).double().log() * (1 - 1e-15)
        return torch.where(corner, ties / tied.clamp(min=1).double(), weights).to(losses.dtype)


def _softmax(values: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(values.masked_fill(~mask, -1e300), dim=-1)


def _divergence(below: Tensor, mask: Tensor, temperature: Tensor, size: Tensor) -> Tensor:
    """KL(softmax(l / t) || uniform) of each group, (..., 1)."""
    scaled = (below / temperature).masked_fill(~mask, -1e300)
    share = torch.softmax(scaled, dim=-1)
    level = torch.logsumexp(scaled, dim=-1, keepdim=True)
    mean = torch.where(mask & (share > 0), share * scaled, 0.0).sum(dim=-1, keepdim=True)
    return mean - level + size
