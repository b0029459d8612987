"""Statistics over repeats: Student's t intervals, paired t-tests by seed, Holm's correction over all pairs of methods.

The unit is the repeat: one number per seed, already averaged over folds. Folds share training classes, so they are not
independent repeats.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from kinfold.registry import suggest

# differences that vary by less than this fraction of the values are constant: only the rounding varies
ROUNDING = 1e-12
TESTS = ("t", "rank")
LARGEST = 1e300  # sums and squares of smaller values stay finite


@dataclass(frozen=True, repr=False)
class Interval:
    """Confidence interval of a mean over repeats.

    Attributes:
        mean: Mean over the repeats.
        half_width: Half the width of the interval. NaN where it is unknown, as with one repeat.
        count: Number of repeats.

    Examples:
        >>> Interval(0.62, 0.0248, 3)
        Interval(0.62 ± 0.0248, count=3)
    """

    mean: float
    half_width: float
    count: int

    def __repr__(self) -> str:
        return f"Interval({self}, count={self.count})"

    def __str__(self) -> str:
        return f"{self.mean:.4g}" if math.isnan(self.half_width) else f"{self.mean:.4g} ± {self.half_width:.3g}"


@dataclass(frozen=True)
class PairedTest:
    """Paired t-test of two methods.

    Attributes:
        difference: Mean difference over paired repeats, with its interval.
        p: Two-sided p value of "there is no difference". NaN where the repeats do not allow a test.
    """

    difference: Interval
    p: float


class MethodPair(NamedTuple):
    """Paired test of two methods on their common seeds.

    Attributes:
        first: Name of a method.
        second: Name of the method it is compared with.
        difference: Mean of first minus second.
        half_width: Half width of the uncorrected interval of the difference.
        p: Uncorrected p value.
        adjusted: p value after Holm's correction over all pairs.
    """

    first: str
    second: str
    difference: float
    half_width: float
    p: float
    adjusted: float


@dataclass(frozen=True, repr=False)
class MethodComparison:
    """Paired tests of several methods, as `compare_methods` returns them.

    Attributes:
        pairs: One test for every pair of methods, or for every method and the baseline.
        intervals: Method -> interval of its mean, for every method with a result.
        methods: All methods, also those without a result.
        best: The method with the best mean over its repeats; the first of equal ones.
        level: Significance level of the tests.
        smaller_is_better: Whether smaller values are better.
        untrained: Methods that ended with their initial weights. No test includes them.
    """

    pairs: tuple[MethodPair, ...]
    intervals: dict[str, Interval]
    methods: tuple[str, ...]
    best: str
    level: float
    smaller_is_better: bool
    untrained: tuple[str, ...] = ()

    def __repr__(self) -> str:
        verdict = "significantly better than all others" if self.best_is_significant else "not significantly better"
        best = f"best={self.best!r} ({self.intervals[self.best]}, {verdict})"
        return f"MethodComparison({best}, {len(self.methods)} methods, level={self.level:g})"

    @property
    def best_trained(self) -> str:
        """The best of the methods that trained; the best of all where none did."""
        trained = {name: interval for name, interval in self.intervals.items() if name not in self.untrained}
        choose = min if self.smaller_is_better else max
        return choose(trained, key=lambda name: trained[name].mean) if trained else self.best

    def is_significant(self, first: str, second: str) -> bool:
        """Tell whether two methods differ significantly after correction.

        Args:
            first: Name of a method.
            second: Name of another method.

        Returns:
            Whether the adjusted p value is at most `level`. False where it is unknown (NaN).

        Raises:
            ValueError: If a name is unknown, or if the two were compared with the baseline only.
        """
        for name in (first, second):
            _check_method(name, self.methods)
        pair = self._find_pair(first, second)
        if pair is None and first != second:
            raise ValueError(
                f"{first!r} and {second!r} were not compared, only each with the baseline; leave baseline= out"
            )
        return pair is not None and pair.adjusted <= self.level

    @property
    def best_is_significant(self) -> bool:
        """Whether the best method is significantly better than every other one, on the seeds they share.

        False where there is no other method, and where a pair was not or could not be tested. Untrained methods are
        neither the best nor beaten.
        """
        others = [name for name in self.methods if name != self.best and name not in self.untrained]
        return self.best not in self.untrained and bool(others) and all(map(self._best_beats, others))

    def _best_beats(self, other: str) -> bool:
        pair = self._find_pair(self.best, other)
        if pair is None or not pair.adjusted <= self.level:
            return False
        # with unequal seeds, the better mean over all repeats may still lose on the common ones
        lead = pair.difference if pair.first == self.best else -pair.difference
        return lead < 0 if self.smaller_is_better else lead > 0

    def _find_pair(self, first: str, second: str) -> MethodPair | None:
        return next((pair for pair in self.pairs if {pair.first, pair.second} == {first, second}), None)


def compute_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Compute Student's t interval of a mean: t quantile x standard deviation / sqrt(n).

    Args:
        values: One result per repeat.
        level: Confidence level.

    Returns:
        The interval. The half width of one repeat is NaN.

    Raises:
        ValueError: If there are no values, or if one is not finite.

    Examples:
        >>> compute_interval([0.61, 0.63, 0.62])
        Interval(0.62 ± 0.0248, count=3)
        >>> compute_interval([0.61]).half_width
        nan
    """
    from scipy.special import stdtrit  # not at the top: `import kinfold` stays fast

    _check_level(level)
    _check_finite(values)
    if not values:
        raise ValueError("an interval needs at least one repeat, got none; leave the method out or show it as missing")
    mean, error = _compute_mean_and_error(values)
    if len(values) < 2:
        return Interval(mean, math.nan, 1)
    return Interval(mean, float(stdtrit(len(values) - 1, (1 + level) / 2)) * error, len(values))


def paired_test(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> PairedTest:
    """Test whether two methods differ: paired two-sided t-test of first minus second.

    Identical results give p = 1. With fewer than two repeats p is NaN. A constant difference other than zero has no
    measurable spread, and p = 0 from two repeats would mislead, so half width and p are NaN.

    Args:
        first: Results of one method.
        second: Results of another method; entry i of both comes from the same seed.
        level: Confidence level of the interval.

    Returns:
        Mean difference, its interval and p.

    Raises:
        ValueError: If the two have unequal lengths, or if a value is not finite.

    Examples:
        >>> round(paired_test([0.64, 0.66, 0.65], [0.61, 0.62, 0.63]).p, 4)
        0.0351
    """
    from scipy.special import stdtr

    _check_level(level)
    _check_finite(first)
    _check_finite(second)
    if len(first) != len(second):
        raise ValueError(f"paired results need one value per seed on both sides, got {len(first)} and {len(second)}")
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if not differences:
        return PairedTest(Interval(math.nan, math.nan, 0), math.nan)
    interval = compute_interval(differences, level)
    if len(differences) < 2:
        return PairedTest(interval, math.nan)
    rounding = ROUNDING * max(map(abs, [*first, *second]))
    if max(map(abs, differences)) <= rounding:
        return PairedTest(interval, 1.0)
    if max(differences) - min(differences) <= rounding:
        return PairedTest(Interval(interval.mean, math.nan, interval.count), math.nan)
    mean, error = _compute_mean_and_error(differences)
    return PairedTest(interval, min(1.0, 2 * float(stdtr(len(differences) - 1, -abs(mean) / error))))


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Correct p values for multiple tests with Holm's step-down method (Holm, 1979).

    Args:
        p_values: p values of one family of tests. A NaN stays NaN and still counts as a member of the family, so that
            a test that failed does not make the others easier.

    Returns:
        Adjusted p values in the same order.

    Raises:
        ValueError: If a value is not between 0 and 1.

    Examples:
        >>> [round(p, 6) for p in adjust_holm([0.01, 0.04, 0.03, math.nan])]
        [0.04, 0.09, 0.09, nan]
    """
    for p in p_values:
        if p < 0 or p > 1:
            raise ValueError(f"p values lie between 0 and 1 (or are NaN where unknown), got {p}")
    adjusted = [math.nan] * len(p_values)
    largest = 0.0
    order = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    for position, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - position) * p))
        adjusted[index] = largest
    return adjusted


def compare_methods(
    results: Mapping[str, Mapping[int, float]],
    baseline: str | None = None,
    level: float = 0.05,
    smaller_is_better: bool = False,
    untrained: Collection[str] = (),
    test: str = "t",
) -> MethodComparison:
    """Compare every pair of methods with paired tests and Holm's correction.

    Args:
        results: Method -> seed -> value. A pair is tested on the seeds that both have. With fewer than two of them p is
            NaN, and the pair still counts in the correction.
        baseline: Compare every method with this one only.
        level: Significance level.
        smaller_is_better: Whether smaller values are better, as for `rho`.
        untrained: Methods that ended with their initial weights. Their pairs have no p and still count in the
            correction.
        test: "t", Student's paired t-test, or "rank", Wilcoxon's signed-rank test, which needs six repeats or more.

    Returns:
        Tests of all pairs, intervals of all methods, and the best method.

    Raises:
        ValueError: If a name is unknown, or if no method has a result.

    Examples:
        >>> runs = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.70, 1: 0.73, 2: 0.71}}
        >>> comparison = compare_methods(runs)
        >>> comparison.best, comparison.best_is_significant, round(comparison.pairs[0].adjusted, 4)
        ('b', True, 0.001)
    """
    from kinfold.experiments.rank_test import rank_test

    _check_level(level)
    if test not in TESTS:
        raise ValueError(f"there is no test {test!r}{suggest(test, TESTS)}; choose {' or '.join(map(repr, TESTS))}")
    compute_test = rank_test if test == "rank" else paired_test
    for name in (*untrained, *([] if baseline is None else [baseline])):
        _check_method(name, results)
    intervals = {name: compute_interval([*values.values()], 1 - level) for name, values in results.items() if values}
    if not intervals:
        raise ValueError("there is nothing to compare: no method has a result")
    names = combinations(results, 2) if baseline is None else ((n, baseline) for n in results if n != baseline)
    tests = []
    for first, second in names:
        seeds = [seed for seed in results[first] if seed in results[second]]
        pair = compute_test([results[first][s] for s in seeds], [results[second][s] for s in seeds], 1 - level)
        p = math.nan if first in untrained or second in untrained else pair.p
        tests.append((first, second, pair.difference.mean, pair.difference.half_width, p))
    adjusted = adjust_holm([entry[-1] for entry in tests])
    choose = min if smaller_is_better else max
    return MethodComparison(
        tuple(MethodPair(*entry, p) for entry, p in zip(tests, adjusted, strict=True)),
        intervals,
        tuple(results),
        choose(intervals, key=lambda name: intervals[name].mean),
        level,
        smaller_is_better,
        tuple(untrained),
    )


def _compute_mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error; the error of one value is NaN."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    # hypot, because squares of very small deviations would vanish
    return mean, math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) * (len(values) - 1))


def _check_finite(values: Sequence[float]) -> None:
    invalid = [value for value in values if not abs(value) <= LARGEST]
    if invalid:
        raise ValueError(f"results must be finite numbers, got {invalid[0]}; leave a failed repeat out instead")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, as 0.95 of an interval or 0.05 of a test, got {level}")


def _check_method(name: str, methods: Collection[str]) -> None:
    if name not in methods:
        raise ValueError(f"there is no method {name!r}{suggest(name, methods)}; there are {', '.join(methods)}")
