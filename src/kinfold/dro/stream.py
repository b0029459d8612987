"""Worst-case weights of a long stream of losses, found in passes over parts of it.

The worst-case weight of a pair depends on its loss l alone: w(l), with one or two unknown numbers. A solver finds them
in a few passes, so that the losses of all pairs are never held at once. There are two kinds of weights:

- zero below a threshold (top-k, simplex, chi-square ball): a list of the pairs with the largest losses is enough, and
  the set is solved on this list;
- an exponential exp(b l) (average with b = 0, KL with b = 1 / gamma, KL ball with an unknown b).

Losses come as matrices with a mask. In a batch that is compared with itself they cover the upper triangle of the
matrix of pairs, and each entry stands for two (`copies`). Sums are in float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs.masks import HUGE, mask_out, mask_to_float

# entries of a list of pairs: with losses, rows and columns 100 MB
LONGEST_LIST = 1 << 22
_MAX_PASSES = 100

BoundOfCount: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class PairList:
    """Pairs and their losses.

    Attributes:
        losses: (T,).
        rows, columns: Positions in the matrix of all pairs, (T,) int64.
        weights: (T,), float64; empty until the weights are known.
    """

    losses: Tensor
    rows: Tensor
    columns: Tensor
    weights: Tensor


@dataclass(frozen=True)
class LossTile:
    """Losses of some rows and columns of the matrix of pairs.

    Attributes:
        losses: (r, c), without a graph.
        mask: Which of them belong to the group, boolean (r, c).
        row, column: Position of the first entry in the matrix of all pairs.
    """

    losses: Tensor
    mask: Tensor
    row: int
    column: int

    def count(self) -> int:
        """Number of entries in the group."""
        return int(self.mask.view(torch.uint8).sum(dim=-1, dtype=torch.int32).sum())

    def inside(self) -> Tensor:
        """Losses, (r c,), with about -1e30 outside the group."""
        return mask_out(self.losses, self.mask).reshape(-1)


class Solver(Protocol):
    """Finds the worst-case weights of one group of losses."""

    copies: int
    finished: bool

    @property
    def needs_sample(self) -> bool:
        """Whether a first guess from a sample saves passes."""

    def start(self, sample: Tensor, share: float) -> None:
        """Take a first guess from a sample (n,) of the losses; `share` is its size relative to all of them."""

    def add(self, tile: LossTile) -> None:
        """Take in a part of the losses."""

    def end_pass(self) -> None:
        """Every loss was added once: finish, or ask for another pass."""

    def take_pairs(self) -> PairList | None:
        """Return the pairs that have weight; None if `weigh` is to be used."""

    def weigh(self, losses: Tensor) -> Tensor:
        """Return the weight of every loss."""

    @property
    def value(self) -> float:
        """The robust value, where there is no list of pairs."""


class LargestLosses:
    """The entries with the largest losses of a stream, above a threshold that rises as entries come in.

    Args:
        size: How many to keep.
        with_ties: Whether all entries that equal the smallest one kept are kept too.
    """

    def __init__(self, size: int, with_ties: bool = False) -> None:
        self.size = size
        self.with_ties = with_ties
        self.threshold = -HUGE / 2
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._length = 0

    def add(self, tile: LossTile) -> None:
        """Take in a tile."""
        flat = tile.inside()
        if self._length < self.size and flat.shape[0] > 2 * self.size:
            index = self._start(flat)
        else:
            index = (flat >= self.threshold if self.with_ties else flat > self.threshold).nonzero().squeeze(1)
        width = tile.losses.shape[1]
        self._parts.append((flat[index], index // width + tile.row, index % width + tile.column))
        self._length += index.shape[0]
        if self._length >= 2 * self.size:
            self._cut()

    def _start(self, flat: Tensor) -> Tensor:
        """Positions of the largest entries of a tile that has many."""
        best = flat.topk(self.size)
        if float(best.values[-1]) <= -HUGE / 2:
            return best.indices[best.values > -HUGE / 2]
        return (flat >= best.values[-1]).nonzero().squeeze(1) if self.with_ties else best.indices

    def _cut(self) -> None:
        losses, rows, columns = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
        if losses.shape[0] > self.size:
            best = losses.topk(self.size)
            lowest = float(best.values[-1])
            index = (losses >= lowest).nonzero().squeeze(1) if self.with_ties else best.indices
            losses, rows, columns = losses[index], rows[index], columns[index]
            self.threshold = max(self.threshold, lowest)
        self._parts = [(losses, rows, columns)]
        self._length = losses.shape[0]

    def take(self) -> PairList:
        """Return what was kept, without weights."""
        if not self._parts:
            nothing = torch.zeros(0, dtype=torch.int64)
            return PairList(torch.zeros(0), nothing, nothing, torch.zeros(0, dtype=torch.float64))
        self._cut()
        losses, rows, columns = self._parts[0]
        return PairList(losses, rows, columns, losses.new_zeros(0, dtype=torch.float64))

    def __len__(self) -> int:
        return self._length


def weigh_list(pairs: PairList, copies: int, solve: Callable[[Tensor], Tensor]) -> PairList:
    """Return the pairs with the weights that `solve` gives their losses, each of which occurs `copies` times."""
    weights = solve(pairs.losses.double().repeat_interleave(copies)).double().view(-1, copies).sum(dim=1)
    used = (weights > 0).nonzero().squeeze(1)
    return PairList(pairs.losses[used], pairs.rows[used], pairs.columns[used], weights[used])


class TopKSolver:
    """The k largest losses; `solve` gives their weights.

    Args:
        k: Number of entries.
        solve: Called with the largest losses and with k, which the number of entries may have lowered.
        copies: How many entries of the matrix an entry stands for.
    """

    def __init__(self, k: int, solve: Callable[[Tensor, int], Tensor], copies: int) -> None:
        self.k = k
        self.copies = copies
        self.finished = False
        self.count = 0
        self._solve = solve
        self._largest = LargestLosses(-(-k // copies))

    needs_sample = False

    def start(self, sample: Tensor, share: float) -> None: ...

    def add(self, tile: LossTile) -> None:
        self.count += tile.count() * self.copies
        self._largest.add(tile)

    def end_pass(self) -> None:
        self.finished = True

    def limit(self, entries: int) -> None:
        """Lower k, after the pass."""
        self.k = min(self.k, entries)

    def take_pairs(self) -> PairList:
        pairs = self._largest.take()
        if self.k == 0 or pairs.losses.shape[0] == 0:
            return PairList(pairs.losses[:0], pairs.rows[:0], pairs.columns[:0], pairs.weights)
        return weigh_list(pairs, self.copies, lambda losses: self._solve(losses, self.k))

    def weigh(self, losses: Tensor) -> Tensor:
        raise NotImplementedError("top-k ends with a list of pairs")

    @property
    def value(self) -> float:
        raise NotImplementedError("top-k ends with a list of pairs")


class LargestSolver:
    """All weight on the largest loss, shared equally among ties.

    Args:
        copies: How many entries of the matrix an entry stands for.
    """

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.finished = False
        self._highest, self._ties = -HUGE / 2, 0
        self._largest = LargestLosses(1, with_ties=True)

    needs_sample = False

    def start(self, sample: Tensor, share: float) -> None: ...

    def add(self, tile: LossTile) -> None:
        flat = tile.inside()
        highest = float(flat.max()) if flat.shape[0] else -HUGE
        if highest > self._highest:
            self._highest, self._ties = highest, 0
        elif highest < self._highest:
            return
        self._ties += int((flat == highest).sum()) * self.copies
        if self._ties <= LONGEST_LIST:
            self._largest.add(tile)

    def end_pass(self) -> None:
        self.finished = True

    def take_pairs(self) -> PairList | None:
        if self._ties > LONGEST_LIST:
            return None
        return weigh_list(self._largest.take(), self.copies, lambda losses: torch.full_like(losses, 1.0 / len(losses)))

    def weigh(self, losses: Tensor) -> Tensor:
        return (losses == self._highest).to(losses.dtype) / max(1, self._ties)

    @property
    def value(self) -> float:
        return self._highest


class TiltSolver:
    """Weights exp(b l) / sum exp(b l).

    Args:
        inverse_temperature: b; None searches the one with KL(weights || uniform) = bound.
        copies: How many entries of the matrix an entry stands for.
        bound: Bound on the divergence for a number of entries, if b is searched.
        is_penalized: Whether the value is log-mean-exp, (1/b) log mean exp(b l), instead of the weighted mean.

    With f(b) = log sum exp(b (l - shift)):  KL = b f' - f + log n,  d KL / d log b = b^2 f''. Newton's steps in log b
    take one pass each.
    """

    def __init__(
        self,
        inverse_temperature: float | None,
        copies: int,
        bound: BoundOfCount | None = None,
        is_penalized: bool = False,
    ) -> None:
        self.copies = copies
        self.finished = False
        self.count = 0
        self._inverse = inverse_temperature
        self._bound_of = bound
        self._is_penalized = is_penalized
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
        if self._is_penalized:
            assert self._inverse
            return self._shift + (math.log(self._sums[0]) - math.log(self.count)) / self._inverse
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
