"""Exponential weights of a long stream of losses: average and the KL ball."""

import math

import torch
from torch import Tensor

from kinfold.dro.stream import BoundOfCount, LargestSolver, LossTile, PairList
from kinfold.pairs.masks import mask_to_float

_MAX_PASSES = 100


class TiltSolver:
    """Weights exp(b l) / sum exp(b l).

    Args:
        inverse_temperature: b; None searches the one with KL(weights || uniform) = bound.
        copies: How many entries of the matrix an entry stands for.
        bound: Bound on the divergence for a number of entries, if b is searched.

    With f(b) = log sum exp(b (l - shift)):  KL = b f' - f + log n,  d KL / d log b = b^2 f''. Newton's steps in log b
    take one pass each.
    """

    def __init__(self, inverse_temperature: float | None, copies: int, bound: BoundOfCount | None = None) -> None:
        self.copies = copies
        self.finished = False
        self.count = 0
        self._inverse = inverse_temperature
        self._bound_of = bound
        self._low, self._high = -math.inf, math.inf  # of log b
        self._passes = 0
        self._ties: LargestSolver | None = None  # in use where the ball reaches a corner of the simplex
        self._reset()

    @property
    def needs_sample(self) -> bool:
        """Whether b is to be found."""
        return self._bound_of is not None

    def _reset(self) -> None:
        self._shift = -math.inf
        self._sums = [0.0, 0.0, 0.0]  # of exp(b (l - shift)) times 1, (l - shift), (l - shift)^2
        self._number, self._tied = 0, 0

    def start(self, sample: Tensor, share: float) -> None:
        if self._bound_of is None:
            return
        bound = self._bound_of(max(1, round(sample.shape[0] / share))) if sample.shape[0] else 0.0
        self._inverse = _find_inverse_temperature(sample.double(), bound)

    def add(self, tile: LossTile) -> None:
        if self._ties is not None:
            self._ties.add(tile)
            return
        number = tile.count()
        if number == 0:
            return
        assert self._inverse is not None
        flat = tile.inside()
        highest = float(flat.max())
        if highest >= self._shift:
            if highest > self._shift:
                self._raise_shift(highest)
            self._tied += int((flat == highest).sum()) * self.copies
        self._number += number * self.copies
        self._rounding = torch.finfo(flat.dtype).eps
        below = flat.view(tile.losses.shape) - self._shift
        powers = mask_to_float(tile.mask, below)
        if self._inverse > 0:
            powers *= _exp(below * self._inverse)
        self._sums[0] += _sum(powers) * self.copies
        self._sums[1] += _sum(powers.mul_(below)) * self.copies
        if self._bound_of is not None:
            self._sums[2] += _sum(powers.mul_(below)) * self.copies

    def _raise_shift(self, highest: float) -> None:
        """Refer all sums to a larger loss."""
        assert self._inverse is not None
        if self._sums[0]:
            step = self._shift - highest
            factor = math.exp(self._inverse * step)
            total, first, second = self._sums
            self._sums = [
                factor * total,
                factor * (first + step * total),
                factor * (second + 2 * step * first + step * step * total),
            ]
        self._shift, self._tied = highest, 0

    def end_pass(self) -> None:
        if self._ties is not None:
            self.finished = True
            return
        self.count = self._number
        self._passes += 1
        is_finite = math.isfinite(self._sums[1]) and self._tied > 0
        if not is_finite:  # a loss is not finite: neither is the value
            self._sums[0] = math.nan
        if self.count == 0 or self._bound_of is None or not is_finite:
            self.finished = True
            return
        bound = self._bound_of(self.count)
        if bound >= math.log(self.count / self._tied) * (1 - 1e-15):
            self._ties = LargestSolver(self.copies)
            return
        if bound <= 0.0 and self._inverse == 0.0:
            self.finished = True
            return
        self._take_newton_step(bound)

    def _take_newton_step(self, bound: float) -> None:
        assert self._inverse is not None
        total, first, second = self._sums
        mean = first / total
        variance = max(second / total - mean * mean, 0.0)
        error = self._inverse * mean - math.log(total) + math.log(self.count) - bound
        position = math.log(self._inverse) if self._inverse > 0 else -50.0
        if error > 0:
            self._high = min(self._high, position)
        else:
            self._low = max(self._low, position)
        slope = self._inverse**2 * variance
        step = max(-2.0, min(2.0, error / slope)) if slope > 0 else math.copysign(1.0, error)
        new = position - step
        # the error of the new b is of the order of the squared step; sums at it follow from their derivatives
        if step * step <= self._rounding or self._passes >= _MAX_PASSES:
            change = math.exp(new) - self._inverse
            self._sums[0] = math.exp(math.log(total) + mean * change + variance * change * change / 2)
            self._sums[1] = self._sums[0] * (mean + variance * change)
            self._inverse = math.exp(new)
            self.finished = True
            return
        if not self._low < new < self._high:
            new = (max(self._low, position - 4) + min(self._high, position + 4)) / 2
        self._inverse = 0.0 if bound <= 0 else math.exp(new)
        self._reset()

    def take_pairs(self) -> PairList | None:
        return None if self._ties is None else self._ties.take_pairs()

    def weigh(self, losses: Tensor) -> Tensor:
        if self._ties is not None:
            return self._ties.weigh(losses)
        if self.count == 0:
            return torch.zeros_like(losses)
        assert self._inverse is not None
        return _exp((losses - self._shift) * self._inverse).div_(self._sums[0])

    @property
    def value(self) -> float:
        if self._ties is not None:
            return self._ties.value
        if self.count == 0:
            return 0.0
        return self._shift + self._sums[1] / self._sums[0]


def _exp(exponents: Tensor) -> Tensor:
    """exp of exponents up to zero, in place; larger ones belong to losses outside the group and become zero.

    Subnormal numbers, which are many times slower, become e^-80 or e^-700.
    """
    return exponents.clamp_(-80.0 if exponents.dtype == torch.float32 else -700.0, 0.0).exp_()


def _sum(values: Tensor) -> float:
    """Sum of (r, c): the rows in the precision of the values, the sum of rows in float64."""
    return float(values.sum(dim=-1).sum(dtype=torch.float64))


def _find_inverse_temperature(losses: Tensor, bound: float) -> float:
    """b with KL(softmax(b l) || uniform) = bound for losses (n,), roughly."""
    below = losses - losses.max() if losses.shape[0] else losses
    if bound <= 0.0 or not bool((below < 0).any()):
        return 0.0
    size = math.log(below.shape[0])
    scale = -math.log(max(-float(below.mean()), 1e-300))
    low, high = scale - 30.0, scale + 30.0
    for _ in range(16):
        middle = (low + high) / 2
        powers = (below * math.exp(middle)).exp_()
        total = float(powers.sum())
        divergence = math.exp(middle) * float((powers * below).sum()) / total - math.log(total) + size
        low, high = (low, middle) if divergence > bound else (middle, high)
    return math.exp((low + high) / 2)
