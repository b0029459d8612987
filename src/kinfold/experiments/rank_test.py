"""Wilcoxon's signed-rank test of paired repeats, for differences that are far from normally distributed.

It uses the order of the differences, not their size, so that one run that failed badly does not hide a difference
that all others show. The price: n repeats give no p value below 2^(1 - n), and fewer than six are never significant at
5 %. Holm's correction over many pairs needs more still.
"""

from collections.abc import Sequence

from kinfold.experiments.statistics import ROUNDING, PairedTest, paired_test

MIN_REPEATS = 6  # with fewer, no result is significant at 5 %


def rank_test(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> PairedTest:
    """Test whether two methods differ, by the ranks of their paired differences (Wilcoxon, 1945).

    The p value is exact: the share of all assignments of signs to the observed differences, ties included, whose rank
    sum is at least as far from its mean. Differences of zero are ranked and then left out (Pratt, 1959).

    Args:
        first: Results of one method.
        second: Results of another method; entry i of both comes from the same seed.
        level: Confidence level of the interval, which is that of Student's t.

    Returns:
        Mean difference, its interval, and p; NaN with fewer than two repeats.

    Raises:
        ValueError: The two have unequal lengths, or a value is not finite.

    Examples:
        >>> rank_test([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.9, 1.8, 2.7, 3.6, 4.5, 5.4]).p
        0.03125
    """
    test = paired_test(first, second, level)
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        return test
    rounding = ROUNDING * max(map(abs, [*first, *second]))
    ranks = _rank_sizes([0.0 if abs(d) <= rounding else d for d in differences], rounding)
    # twice the ranks are integers; counts[s] is the number of sign assignments whose positive ranks sum to s / 2
    counts = [1]
    for rank, _ in ranks:
        doubled = round(2 * rank)
        longer = counts + [0] * doubled
        for total, count in enumerate(counts):
            longer[total + doubled] += count
        counts = longer
    observed = round(sum(2 * rank for rank, is_positive in ranks if is_positive))
    distance = abs(2 * observed - (len(counts) - 1))
    extreme = sum(count for total, count in enumerate(counts) if abs(2 * total - (len(counts) - 1)) >= distance)
    return PairedTest(test.difference, extreme / sum(counts))


def _rank_sizes(differences: Sequence[float], rounding: float) -> list[tuple[float, bool]]:
    """Rank of each difference other than zero by its size, the mean rank for ties, and whether it is positive."""
    ordered = sorted(differences, key=abs)
    ranks: list[tuple[float, bool]] = []
    start = 0
    while start < len(ordered):
        end = start
        while end < len(ordered) and abs(ordered[end]) - abs(ordered[start]) <= rounding:
            end += 1
        mean_rank = (start + 1 + end) / 2
        ranks += [(mean_rank, d > 0) for d in ordered[start:end] if d != 0]
        start = end
    return ranks
