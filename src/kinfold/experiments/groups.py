"""Groups of methods that a comparison cannot distinguish, and the repeats that would be needed to distinguish them.

A ranking suggests an order that the data may not support. Groups say what is known: two methods that share a group were
not significantly different, and two that share none were.
"""

import math
from collections.abc import Mapping

from kinfold.experiments.statistics import MethodComparison

MAX_REPEATS = 10_000  # more than anybody would run


def find_groups(comparison: MethodComparison) -> list[tuple[str, ...]]:
    """Return every largest set of methods in which no pair differs significantly.

    A method may be in several groups: it may be close to a better and to a worse one that differ from each other.

    Args:
        comparison: Paired tests of all pairs of methods.

    Returns:
        The groups, the one with the best method first; inside of a group the methods are in the order of their means.
        Methods without a result and untrained ones are in no group.

    Raises:
        ValueError: The methods were compared with a baseline only.

    Examples:
        >>> from kinfold.experiments import compare_methods
        >>> runs = {"a": {0: 0.70, 1: 0.71, 2: 0.72}, "b": {0: 0.701, 1: 0.709, 2: 0.721}}
        >>> find_groups(compare_methods(runs | {"c": {0: 0.5, 1: 0.51, 2: 0.523}}))
        [('b', 'a'), ('c',)]
    """
    sign = 1.0 if comparison.smaller_is_better else -1.0
    methods = [name for name in comparison.intervals if name not in comparison.untrained]
    methods.sort(key=lambda name: sign * comparison.intervals[name].mean)
    near = {
        name: {other for other in methods if other != name and not comparison.is_significant(name, other)}
        for name in methods
    }
    cliques: list[set[str]] = []
    _collect_cliques(near, set(), set(methods), set(), cliques)
    position = {name: index for index, name in enumerate(methods)}
    groups = [tuple(sorted(clique, key=position.__getitem__)) for clique in cliques]
    return sorted(groups, key=lambda group: [position[name] for name in group])


def _collect_cliques(
    near: Mapping[str, set[str]], clique: set[str], candidates: set[str], excluded: set[str], cliques: list[set[str]]
) -> None:
    """Append all maximal cliques that contain `clique` (Bron and Kerbosch, 1973, with a pivot)."""
    if not candidates:
        if clique and not excluded:
            cliques.append(clique)
        return
    pivot = max(candidates | excluded, key=lambda name: len(near[name] & candidates))
    for name in sorted(candidates - near[pivot]):
        _collect_cliques(near, clique | {name}, candidates & near[name], excluded & near[name], cliques)
        candidates = candidates - {name}
        excluded = excluded | {name}


def count_needed_repeats(deviation: float, effect: float, level: float = 0.05, power: float = 0.8) -> int | None:
    """Return how many paired repeats would show an effect with a given probability.

    Args:
        deviation: Standard deviation of the paired differences.
        effect: The mean difference that should be seen, in the same unit.
        level: Significance level of the two-sided paired t-test, without correction for several tests.
        power: Probability that the test is significant if the effect is real.

    Returns:
        The smallest number of repeats, at least 2; None if it is above 10,000 or the deviation is unknown.

    Raises:
        ValueError: The effect is not above zero, or level or power do not lie between 0 and 1.

    Examples:
        >>> count_needed_repeats(deviation=0.5, effect=0.5)
        10
    """
    from scipy.special import nctdtr, stdtrit

    if not effect > 0:
        raise ValueError(f"effect must be above zero, got {effect}")
    if not (0 < level < 1 and 0 < power < 1):
        raise ValueError(f"level and power must lie between 0 and 1, got {level} and {power}")
    if math.isnan(deviation):
        return None
    if deviation == 0:
        return 2

    def is_enough(repeats: int) -> bool:
        limit = float(stdtrit(repeats - 1, 1 - level / 2))
        shift = effect / deviation * math.sqrt(repeats)
        return 1 - float(nctdtr(repeats - 1, shift, limit)) >= power

    if not is_enough(MAX_REPEATS):
        return None
    low, high = 1, 2  # the first is never enough
    while not is_enough(high):
        low, high = high, min(2 * high, MAX_REPEATS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
