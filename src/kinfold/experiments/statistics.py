"""What repeats tell: Student's intervals, paired tests by seed, Holm's correction over all pairs of methods.

The unit is the repeat: one number per seed, already averaged over folds. Folds share training classes and are no
repeats. Nothing here needs scipy.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from kinfold.experiments.student import student_quantile, student_tail
from kinfold.registry import suggest

# differences that vary by less than this part of the values are constant: what varies is the rounding
ROUNDING = 1e-12
LARGEST = 1e300  # sums and squares of what is smaller stay finite


@dataclass(frozen=True)
class Interval:
    """mean ± half_width, from `count` repeats. A half width of NaN is unknown, not zero."""

    mean: float
    half_width: float
    count: int


@dataclass(frozen=True)
class PairedTest:
    """Mean difference of paired repeats, and the two-sided p of "there is none". NaN: the repeats cannot tell."""

    difference: Interval
    p: float


class MethodPair(NamedTuple):
    """One pair of methods: first less second on their common seeds, with the uncorrected interval and p."""

    first: str
    second: str
    difference: float
    half_width: float
    p: float
    adjusted: float  # p after Holm's correction over the whole family


@dataclass(frozen=True)
class MethodComparison:
    """What `compare` found. `best` has the best mean over its own repeats, the first of equals. `untrained`: methods
    that are left out of every statement, because they ended with the weights they began with."""

    rows: tuple[MethodPair, ...]
    intervals: dict[str, Interval]  # of every method that has a result
    methods: tuple[str, ...]
    best: str
    level: float
    smaller_is_better: bool
    untrained: tuple[str, ...] = ()

    @property
    def leader(self) -> str:
        """The best of the methods that trained; the best of all where none did."""
        trained = {name: entry for name, entry in self.intervals.items() if name not in self.untrained}
        choose = min if self.smaller_is_better else max
        return choose(trained, key=lambda name: trained[name].mean) if trained else self.best

    def find_significant(self, first: str, second: str) -> bool:
        """Whether these two differ at `level` after correction. An unknown p (NaN) tells nothing apart."""
        for name in (first, second):
            _known(name, self.methods)
        row = self._row(first, second)
        if row is None and first != second:
            raise ValueError(
                f"{first!r} and {second!r} were not compared, only each with the baseline; leave baseline= out"
            )
        return row is not None and row.adjusted <= self.level

    @property
    def real(self) -> bool:
        """Whether the best is told apart from every other method, and is the better one on the seeds they share.

        False where there is no other method, and where a pair was not compared or could not be. Methods that did not
        train are neither the best nor beaten.
        """
        others = [name for name in self.methods if name != self.best and name not in self.untrained]
        return self.best not in self.untrained and bool(others) and all(map(self._beaten, others))

    def _beaten(self, other: str) -> bool:
        row = self._row(self.best, other)
        if row is None or not row.adjusted <= self.level:
            return False
        # unequal seeds: the better mean over all repeats may still lose on the common ones
        lead = row.difference if row.first == self.best else -row.difference
        return lead < 0 if self.smaller_is_better else lead > 0

    def _row(self, first: str, second: str) -> MethodPair | None:
        return next((row for row in self.rows if {row.first, row.second} == {first, second}), None)


def compute_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Student's t interval of the mean: t quantile x sd / sqrt(n). One repeat has none: its half width is NaN.

    >>> found = interval([0.61, 0.63, 0.62])
    >>> f"{found.mean:.4f} ± {found.half_width:.4f} of {found.count}"
    '0.6200 ± 0.0248 of 3'
    >>> interval([0.61]).half_width
    nan
    """
    _proportion(level)
    _finite(values)
    if not values:
        raise ValueError("an interval needs at least one repeat, got none; leave the method out or show it as missing")
    mean, error = _mean_and_error(values)
    if len(values) < 2:
        return Interval(mean, math.nan, 1)
    return Interval(mean, student_quantile((1 + level) / 2, len(values) - 1) * error, len(values))


def paired_test(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> PairedTest:
    """Paired two-sided t-test of first less second; entry i of both comes from the same seed.

    Identical results: p = 1. Fewer than two repeats: p is NaN. A constant difference other than zero: its spread
    cannot be estimated, and p = 0 would be a lie with two repeats, so half width and p are NaN and nothing is shown.

    >>> round(paired([0.64, 0.66, 0.65], [0.61, 0.62, 0.63]).p, 4)
    0.0351
    """
    _proportion(level)
    _finite(first)
    _finite(second)
    if len(first) != len(second):
        raise ValueError(f"paired results need one value per seed on both sides, got {len(first)} and {len(second)}")
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if not differences:
        return PairedTest(Interval(math.nan, math.nan, 0), math.nan)
    found = compute_interval(differences, level)
    if len(differences) < 2:
        return PairedTest(found, math.nan)
    rounding = ROUNDING * max(map(abs, [*first, *second]))
    if max(map(abs, differences)) <= rounding:
        return PairedTest(found, 1.0)
    if max(differences) - min(differences) <= rounding:
        return PairedTest(Interval(found.mean, math.nan, found.count), math.nan)
    mean, error = _mean_and_error(differences)
    return PairedTest(found, min(1.0, 2 * student_tail(abs(mean) / error, len(differences) - 1)))


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: each p against all others of its family, in the order given.

    NaN stays NaN but counts as a member of the family: a comparison that failed makes the others no easier.

    >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03, math.nan])]
    [0.04, 0.09, 0.09, nan]
    """
    for p in p_values:
        if p < 0 or p > 1:
            raise ValueError(f"p values lie between 0 and 1 (or are NaN where unknown), got {p}")
    adjusted = [math.nan] * len(p_values)
    largest = 0.0
    order = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    for rank, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        adjusted[index] = largest
    return adjusted


def compare_methods(
    results: Mapping[str, Mapping[int, float]],
    baseline: str | None = None,
    level: float = 0.05,
    smaller_is_better: bool = False,
    untrained: Collection[str] = (),
) -> MethodComparison:
    """Every pair of methods (with `baseline`: every other method less it), paired by seed, corrected as one family.

    results: method -> seed -> value. Only seeds that both have are paired; with fewer than two, or with no results at
    all of one method, p is NaN, and such a pair still counts in the family. Which
    metrics are better when smaller, see `kinfold.training.loop.selection.is_better`. `untrained` methods ended with the
    weights they began with: their pairs have no p, and still count in the family.

    >>> runs = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.70, 1: 0.73, 2: 0.71}}
    >>> found = compare(runs)
    >>> found.best, found.real, round(found.rows[0].adjusted, 4)
    ('b', True, 0.001)
    """
    _proportion(level)
    if baseline is not None:
        _known(baseline, results)
    for name in untrained:
        _known(name, results)
    intervals = {name: compute_interval([*values.values()], 1 - level) for name, values in results.items() if values}
    if not intervals:
        raise ValueError("there is nothing to compare: no method has a result")
    pairs = combinations(results, 2) if baseline is None else ((n, baseline) for n in results if n != baseline)
    rows = []
    for first, second in pairs:
        seeds = [seed for seed in results[first] if seed in results[second]]
        found = paired_test([results[first][s] for s in seeds], [results[second][s] for s in seeds], 1 - level)
        p = math.nan if first in untrained or second in untrained else found.p
        rows.append((first, second, found.difference.mean, found.difference.half_width, p))
    adjusted = adjust_holm([row[-1] for row in rows])
    choose = min if smaller_is_better else max
    return MethodComparison(
        tuple(MethodPair(*row, p) for row, p in zip(rows, adjusted, strict=True)),
        intervals,
        tuple(results),
        choose(intervals, key=lambda name: intervals[name].mean),
        level,
        smaller_is_better,
        tuple(untrained),
    )


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error; the error of one value is unknown."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    # hypot, because squares of very small deviations would vanish
    return mean, math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) * (len(values) - 1))


def _finite(values: Sequence[float]) -> None:
    wrong = [value for value in values if not abs(value) <= LARGEST]
    if wrong:
        raise ValueError(f"results must be finite numbers, got {wrong[0]}; leave a failed repeat out instead")


def _proportion(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, as 0.95 of an interval or 0.05 of a test, got {level}")


def _known(name: str, methods: Collection[str]) -> None:
    if name not in methods:
        raise ValueError(f"there is no method {name!r}{suggest(name, methods)}; there are {', '.join(methods)}")
