"""The threshold of a chi-square ball over a long stream of losses."""

import math

import torch
from torch import Tensor

from kinfold.dro.stream import LONGEST_LIST, BoundOfCount, LargestLosses, LossTile, PairList, weigh_list

_MAX_PASSES = 100


class ChiSquareSolver:
    """Weights [l - eta]+ / sum [l - eta]+, with the eta at which the sum of squared weights meets its bound.

    Usually few losses have weight. One pass collects somewhat more of the largest losses than a sample says are needed,
    and the ball is solved on this list. If eta turns out to lie below the list, or if too many
    losses have weight for a list, eta is the root of a function of sums over the losses above it. One pass gives the
    exact eta for the losses above the last one, and the next pass confirms that they are the ones above the new eta.

    Args:
        bound: Bound on the sum of squared weights for a number of entries.
        copies: How many entries of the matrix an entry stands for.
    """

    def __init__(self, bound: BoundOfCount, copies: int) -> None:
        self.copies = copies
        self.finished = False
        self.count = 0
        self._bound_of = bound
        self._pairs: PairList | None = None
        self._largest: LargestLosses | None = None  # while a list is collected
        self._shift, self._eta = 0.0, -1.0
        self._low, self._high = -math.inf, math.inf
        self._passes, self._is_uniform = 0, False
        self._last_number: float | None = None  # of losses above the eta that the present one was computed from
        self._reset()

    needs_sample = True

    def _reset(self) -> None:
        self._number = 0
        self._total = 0.0
        self._sums = [0.0, 0.0, 0.0]  # number, sum and sum of squares of [l - eta]+

    def start(self, sample: Tensor, share: float) -> None:
        self._shift = float(sample.max()) if sample.shape[0] else 0.0
        ordered = (sample.double() - self._shift).sort(descending=True).values
        number = ordered.shape[0]
        if number == 0:
            self._largest = LargestLosses(1)
            return
        bound = min(1.0, self._bound_of(max(1, round(number / share))) / share)
        support = count_support(ordered, bound)
        # the rank of eta in the sample has a standard error of about its root
        cautious = int(support + 5 * math.sqrt(support) + 10)
        size = math.ceil(cautious / share / self.copies)
        if support < number and size <= LONGEST_LIST:
            self._largest = LargestLosses(size)
        else:
            eta = find_threshold(ordered[:support], bound)
            self._eta = eta if eta > -math.inf else float(ordered[-1])

    def add(self, tile: LossTile) -> None:
        self._number += tile.count() * self.copies
        if self._largest is not None:
            self._largest.add(tile)
            return
        below = tile.inside().double() - self._shift
        self._total += float(torch.where(tile.mask.reshape(-1), below, 0.0).sum(dtype=torch.float64)) * self.copies
        above = (below - self._eta).relu_()
        self._sums[0] += int((above > 0).sum()) * self.copies
        self._sums[1] += float(above.sum(dtype=torch.float64)) * self.copies
        self._sums[2] += float(above.square_().sum(dtype=torch.float64)) * self.copies

    def end_pass(self) -> None:
        self.count = self._number
        self._passes += 1
        if self.count == 0:
            self.finished = True
        elif self._largest is not None:
            self._solve_list(self._largest)
        else:
            self._take_step()
        if not self.finished:
            self._reset()

    def _solve_list(self, largest: LargestLosses) -> None:
        pairs = largest.take()
        order = pairs.losses.argsort(descending=True, stable=True)
        pairs = PairList(pairs.losses[order], pairs.rows[order], pairs.columns[order], pairs.weights)
        is_all = pairs.losses.shape[0] * self.copies >= self.count
        self._is_enough = True

        def solve(losses: Tensor) -> Tensor:
            weights, is_inside = solve_largest(losses - losses[0], self._bound_of(self.count))
            self._is_enough = is_all or is_inside
            return weights

        solved = weigh_list(pairs, self.copies, solve)
        if self._is_enough:
            self._pairs, self.finished = solved, True
            return
        self._largest = None
        self._eta = float(pairs.losses[-1]) - self._shift

    def _take_step(self) -> None:
        number, first, second = self._sums
        bound = self._bound_of(self.count)
        if bound * self.count <= 1.0 + 1e-15:
            self._is_uniform = self.finished = True
            return
        if number == self._last_number:
            self.finished = True
            return
        is_outside = number == 0 or second > bound * first * first
        if is_outside:
            self._high = min(self._high, self._eta)
        else:
            self._low = max(self._low, self._eta)
        variation = second - first * first / max(1.0, number)
        if not is_outside and variation <= 1e-14 * second:  # the losses above are equal, and so are their weights
            self.finished = True
            return
        if number and bound > 1.0 / number and variation > 0:  # exact if no loss lies between the two thresholds
            new = self._eta + first / number - math.sqrt(variation / (bound - 1.0 / number)) / number
            new = min(max(new, self._low), self._high)
            self._last_number = number
        else:
            new = (self._low + self._high) / 2 if math.isfinite(self._low) else 2 * self._eta - 1.0
            self._last_number = None
        is_close = self._high - self._low <= 1e-15 * max(abs(self._eta), 1e-3)
        if (first > 0 and is_close) or self._passes >= _MAX_PASSES or not math.isfinite(first):
            self.finished = True
            return
        self._eta = new

    def take_pairs(self) -> PairList | None:
        return self._pairs

    def weigh(self, losses: Tensor) -> Tensor:
        if self.count == 0:
            return torch.zeros_like(losses)
        if self._is_uniform:
            return torch.full_like(losses, 1.0 / self.count)
        return (losses - (self._shift + self._eta)).relu_() / max(self._sums[1], 1e-300)

    @property
    def value(self) -> float:
        if self.count == 0:
            return 0.0
        if self._is_uniform:
            return self._shift + self._total / self.count
        return self._shift + self._eta + self._sums[2] / max(self._sums[1], 1e-300)


def solve_largest(ordered: Tensor, bound: float) -> tuple[Tensor, bool]:
    """Weights of the largest losses of a longer list.

    Args:
        ordered: Losses (n,), largest first, relative to the largest.
        bound: Bound on the sum of squared weights.

    Returns:
        Weights (n,), and whether they are also those of the longer list: smaller losses have no weight.
    """
    number = ordered.shape[0]
    tied = int((ordered == ordered[0]).sum())
    weights = torch.zeros_like(ordered)
    if bound * tied >= 1.0:  # the ball reaches the corner of the simplex
        weights[:tied] = 1.0 / tied
        return weights, tied < number
    support = count_support(ordered, bound)
    inside = ordered[:support]
    deviation = inside - inside.mean()
    variation = float(deviation.square().sum())
    slope = math.sqrt(max(bound - 1.0 / support, 0.0) / max(variation, 1e-300))
    weights[:support] = (1.0 / support + slope * deviation).clamp_(min=0.0)
    return weights / weights.sum(), support < number and find_threshold(inside, bound) >= float(ordered[-1])


def count_support(ordered: Tensor, bound: float) -> int:
    """How many of the losses (n,), largest first, get weight.

    At eta = l_{s+1} the first s have weight, and |p|^2 = sum (l - eta)^2 / (sum (l - eta))^2 falls as s grows. The
    result is the first s for which it is within the bound.
    """
    number = ordered.shape[0]
    rank = torch.arange(1, number + 1, dtype=torch.float64, device=ordered.device)
    first, second = ordered.cumsum(0), ordered.square().cumsum(0)
    eta = torch.cat([ordered[1:], ordered[-1:]])
    total = first - rank * eta
    square = second - 2.0 * eta * first + rank * eta.square()
    within = (square <= bound * total.square()) & (total > 0) & (rank < number)
    return int(within.view(torch.uint8).argmax()) + 1 if bool(within.any()) else number


def find_threshold(inside: Tensor, bound: float) -> float:
    """eta of the losses (s,) that have weight; minus infinity if they are too few or all equal."""
    number, mean = inside.shape[0], float(inside.mean())
    variation = float((inside - mean).square().sum())
    spare = bound - 1.0 / number
    return mean - math.sqrt(variation / spare) / number if spare > 0 and variation > 0 else -math.inf
