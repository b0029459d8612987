"""Groups of methods that cannot be distinguished, and the repeats that would distinguish them."""

import math

import numpy as np
import pytest
from scipy import stats

from kinfold.experiments import MethodComparison, MethodPair, compute_interval
from kinfold.experiments.groups import count_needed_repeats, find_groups


def comparison(means: dict[str, float], significant: set[frozenset[str]], **options) -> MethodComparison:
    names = [*means]
    pairs = tuple(
        MethodPair(a, b, means[a] - means[b], 0.1, 0.5, 0.01 if frozenset((a, b)) in significant else 0.5)
        for position, a in enumerate(names)
        for b in names[position + 1 :]
    )
    intervals = {name: compute_interval([mean - 0.01, mean + 0.01]) for name, mean in means.items()}
    settings = {"smaller_is_better": False, **options}
    return MethodComparison(pairs, intervals, tuple(names), max(means, key=means.__getitem__), 0.05, **settings)


def test_a_method_between_two_that_differ_is_in_both_groups():
    means = {"low": 0.1, "middle": 0.2, "high": 0.3}
    groups = find_groups(comparison(means, {frozenset(("low", "high"))}))
    assert groups == [("high", "middle"), ("middle", "low")]


def test_smaller_values_come_first_where_they_are_better():
    means = {"low": 0.1, "high": 0.3}
    assert find_groups(comparison(means, {frozenset(means)}, smaller_is_better=True)) == [("low",), ("high",)]


def test_untrained_methods_are_in_no_group():
    assert find_groups(comparison({"a": 0.1, "b": 0.2, "c": 0.3}, set(), untrained=("b",))) == [("c", "a")]


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_all_largest_sets_without_a_significant_pair(seed):
    draw = np.random.default_rng(seed)
    names = [f"m{i}" for i in range(7)]
    means = {name: float(draw.normal()) for name in names}
    significant = {
        frozenset((a, b)) for i, a in enumerate(names) for b in names[i + 1 :] if draw.random() < draw.random()
    }
    groups = {frozenset(group) for group in find_groups(comparison(means, significant))}
    free = [
        {name for bit, name in enumerate(names) if code >> bit & 1}
        for code in range(1, 1 << len(names))
        if not any(pair <= {name for bit, name in enumerate(names) if code >> bit & 1} for pair in significant)
    ]
    assert groups == {frozenset(subset) for subset in free if not any(subset < other for other in free)}


@pytest.mark.parametrize(("deviation", "effect"), [(0.5, 0.5), (1.0, 0.5), (0.2, 0.5)])
def test_the_needed_repeats_give_the_power_in_a_simulation(deviation, effect):
    repeats = count_needed_repeats(deviation, effect)
    draw = np.random.default_rng(0)

    def simulate(count):
        sample = draw.normal(effect, deviation, size=(40_000, count))
        return float((stats.ttest_1samp(sample, 0.0, axis=1).pvalue <= 0.05).mean())

    assert simulate(repeats) > 0.79
    if repeats > 2:
        assert simulate(repeats - 1) < 0.81


def test_a_spread_of_zero_needs_two_repeats_and_an_unknown_one_has_no_answer():
    assert count_needed_repeats(0.0, 0.5) == 2
    assert count_needed_repeats(math.nan, 0.5) is None
    assert count_needed_repeats(1e6, 0.5) is None


@pytest.mark.parametrize(
    "options", [{"effect": 0.0}, *({"effect": 0.5, name: value} for name in ("level", "power") for value in (0.0, 1.0))]
)
def test_wrong_values_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        count_needed_repeats(1.0, **options)
