"""Intervals, paired tests and Holm's correction, against scipy, naive loops and simulated experiments."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from kinfold.experiments.statistics import (
    Interval,
    PairedTest,
    adjust_holm,
    compare_methods,
    compute_interval,
    paired_test,
)
from kinfold.experiments.student import student_quantile
from kinfold.training.loop.selection import is_better

# multiples of 2^-20: sums and differences are exact, so that nothing below depends on rounding
results = st.integers(-(2**20), 2**20).map(lambda n: n / 2**20)
probabilities = st.floats(0, 1) | st.just(math.nan)


def same(found, expected):
    return found == pytest.approx(expected, rel=1e-12, abs=1e-15, nan_ok=True)


# intervals


@given(st.lists(results, min_size=2, max_size=30), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
@settings(deadline=None)
def test_interval_equals_scipy(values, level):
    found = compute_interval(values, level)
    assert found.count == len(values)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-12, abs=1e-15)
    expected = stats.t.ppf((1 + level) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert found.half_width == pytest.approx(expected, rel=1e-10, abs=1e-15)


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    covered = 0
    for values in rng.normal(0.6, 0.01, (1000, 4)).tolist():
        found = compute_interval(values, 0.9)
        covered += abs(found.mean - 0.6) <= found.half_width
    assert stats.binom.ppf(0.0005, 1000, 0.9) <= covered <= stats.binom.ppf(0.9995, 1000, 0.9)


def test_one_repeat_has_an_unknown_half_width():
    found = compute_interval([0.5])
    assert (found.mean, found.count) == (0.5, 1)
    assert math.isnan(found.half_width)


def test_equal_repeats_have_no_width():
    assert compute_interval([0.25, 0.25, 0.25]) == Interval(0.25, 0.0, 3)


def test_very_small_deviations_do_not_vanish():
    expected = student_quantile(0.975, 1) * 1e-200
    assert compute_interval([1e-200, 3e-200]).half_width == pytest.approx(expected, rel=1e-10, abs=0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1.7e308])
def test_values_that_are_no_results_are_refused(wrong):
    with pytest.raises(ValueError, match="finite"):
        compute_interval([0.5, wrong])
    for first, second in (([0.5, wrong], [0.1, 0.2]), ([0.1, 0.2], [0.5, wrong])):
        with pytest.raises(ValueError, match="finite"):
            paired_test(first, second)
    with pytest.raises(ValueError, match="finite"):
        compare_methods({"a": {0: wrong}, "b": {0: 0.5}})


def test_no_repeats_and_wrong_levels_are_refused():
    with pytest.raises(ValueError, match="at least one repeat"):
        compute_interval([])
    for level in (0, 1, 95, -0.1, math.nan):
        with pytest.raises(ValueError, match="level"):
            compute_interval([0.1, 0.2], level)
        with pytest.raises(ValueError, match="level"):
            paired_test([0.1, 0.2], [0.2, 0.2], level)
        with pytest.raises(ValueError, match="level"):
            compare_methods({"a": {0: 0.5}}, level=level)


# paired tests


@given(st.lists(st.tuples(results, results), min_size=2, max_size=20))
@settings(deadline=None)
def test_paired_equals_scipy(pairs):
    first, second = ([*side] for side in zip(*pairs, strict=True))
    assume(len({a - b for a, b in pairs}) > 1)
    found, expected = paired_test(first, second), stats.ttest_rel(first, second)
    assert found.p == pytest.approx(float(expected.pvalue), rel=1e-8, abs=1e-14)
    limits = expected.confidence_interval(0.95)
    assert found.difference.mean - found.difference.half_width == pytest.approx(float(limits.low), rel=1e-8, abs=1e-12)
    assert found.difference.count == len(pairs)


@given(st.lists(st.tuples(results, results), min_size=2, max_size=12), st.randoms())
@settings(deadline=None)
def test_p_minds_neither_the_order_of_seeds_nor_of_methods(pairs, source):
    first, second = ([*side] for side in zip(*pairs, strict=True))
    found, turned = paired_test(first, second), paired_test(second, first)
    assert same(turned.p, found.p)
    assert same(turned.difference.mean, -found.difference.mean)
    source.shuffle(pairs)
    assert same(paired_test(*([*side] for side in zip(*pairs, strict=True))).p, found.p)


@given(st.lists(st.tuples(results, results), min_size=2, max_size=12))
@settings(deadline=None)
def test_interval_leaves_zero_out_exactly_where_p_is_small(pairs):
    found = paired_test(*([*side] for side in zip(*pairs, strict=True)), level=0.9)
    assume(abs(found.p - 0.1) > 1e-9)
    assert (abs(found.difference.mean) > found.difference.half_width) == (found.p < 0.1)


def test_identical_results_have_p_one():
    assert paired_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]) == PairedTest(Interval(0.0, 0.0, 3), 1.0)


def test_a_constant_difference_shows_nothing():
    for first in ([0.75, 0.5], [0.7, 0.8, 0.9, 0.6]):  # the second one is constant but for rounding
        second = [value - 0.1 for value in first]
        found = paired_test(first, second)
        assert found.difference.mean == pytest.approx(0.1)
        assert math.isnan(found.p)
        assert math.isnan(found.difference.half_width)
    assert not compare_methods({"a": {0: 0.7, 1: 0.8, 2: 0.9}, "b": {0: 0.6, 1: 0.7, 2: 0.8}}).real


def test_differences_that_are_only_rounding_are_identical_results():
    assert 0.1 + 0.2 != 0.3
    assert paired_test([0.1 + 0.2, 0.5, 0.3], [0.3, 0.5, 0.1 + 0.2]).p == 1


def test_fewer_than_two_pairs_cannot_tell():
    assert math.isnan(paired_test([], []).p)
    assert paired_test([], []).difference.count == 0
    assert math.isnan(paired_test([0.5], [0.4]).p)
    assert paired_test([0.5], [0.25]).difference.mean == 0.25
    with pytest.raises(ValueError, match="3 and 2"):
        paired_test([0.1, 0.2, 0.3], [0.1, 0.2])


# Holm


def naive_holm(p_values):
    """Adjusted p: the smallest level at which the step-down procedure rejects, by trying all that matter."""
    family = [1.0 if math.isnan(p) else p for p in p_values]

    def rejected(level):
        left, gone = {*range(len(family))}, set()
        while left:
            smallest = min(left, key=lambda index: family[index])
            if family[smallest] * len(left) > level:
                break
            left.remove(smallest)
            gone.add(smallest)
        return gone

    levels = sorted({p * size for p in family for size in range(1, len(family) + 1) if p * size <= 1} | {1.0})
    found = [min((v for v in levels if i in rejected(v)), default=1.0) for i in range(len(family))]
    return [math.nan if math.isnan(p) else value for p, value in zip(p_values, found, strict=True)]


@given(st.lists(probabilities, max_size=7))
@settings(deadline=None)
def test_holm_equals_the_step_down_procedure(p_values):
    assert adjust_holm(p_values) == pytest.approx(naive_holm(p_values), rel=1e-12, nan_ok=True)


def test_worked_example_of_holm():
    # four tests: 0.005 x 4, then 0.01 x 3, then 0.03 x 2, then 0.04 x 1 which may not fall below the one before
    assert adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_holm([0.6, 0.7]) == [1.0, 1.0]
    assert adjust_holm([]) == []


@given(st.lists(probabilities, min_size=1, max_size=8), st.integers(0, 7))
def test_losing_a_p_makes_no_other_easier(p_values, index):
    lost = [*p_values]
    lost[index % len(lost)] = math.nan
    for before, after, p in zip(adjust_holm(p_values), adjust_holm(lost), lost, strict=True):
        assert math.isnan(after) if math.isnan(p) else after >= before


def test_p_values_outside_0_to_1_are_refused():
    for wrong in (-0.01, 1.01, math.inf):
        with pytest.raises(ValueError, match="between 0 and 1"):
            adjust_holm([0.5, wrong])


# comparisons of methods


def test_pairs_are_made_on_common_seeds_and_corrected_as_one_family():
    runs = {
        "a": {0: 0.60, 1: 0.62, 2: 0.61, 7: 0.1},
        "b": {2: 0.72, 1: 0.73, 0: 0.70},
        "c": {1: 0.65, 2: 0.60, 3: 0.63, 0: 0.61},
    }
    found = compare_methods(runs)
    assert [row[:2] for row in found.rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    for row in found.rows:
        first, second = ([runs[name][seed] for seed in (0, 1, 2)] for name in row[:2])
        expected = paired_test(first, second)
        assert same([*row[2:5]], [expected.difference.mean, expected.difference.half_width, expected.p])
    assert [row.adjusted for row in found.rows] == adjust_holm([row.p for row in found.rows])
    assert found.best == "b"
    assert found.intervals["a"] == compute_interval([0.60, 0.62, 0.61, 0.1])  # over its own repeats
    assert found.find_significant("a", "b")
    assert found.find_significant("b", "a")
    assert not found.find_significant("a", "c")
    assert not found.find_significant("a", "a")


def test_with_a_baseline_only_differences_from_it_are_tested():
    runs = {"a": {0: 1.0, 1: 1.1, 2: 1.1}, "old": {0: 0.5, 1: 0.7, 2: 0.6}, "c": {0: 0.9, 1: 0.4, 2: 0.5}}
    found = compare_methods(runs, baseline="old")
    assert [row[:2] for row in found.rows] == [("a", "old"), ("c", "old")]
    assert found.rows[0].difference == pytest.approx(1.4 / 3)
    assert found.rows[0].adjusted == pytest.approx(2 * found.rows[0].p)
    assert found.find_significant("old", "a")
    with pytest.raises(ValueError, match="not compared"):
        found.find_significant("a", "c")
    assert found.best == "a"
    assert not found.real  # nobody asked whether a differs from c
    assert compare_methods({name: runs[name] for name in ("a", "old")}, baseline="old").real


def test_the_best_is_real_only_when_told_apart_from_every_other():
    clear = {"a": {s: 0.5 + 0.01 * (s % 3) for s in range(6)}, "b": {s: 0.7 + 0.01 * (s % 2) for s in range(6)}}
    assert compare_methods(clear).real
    rival = {s: clear["b"][s] + (-1) ** (s // 2) * 0.005 for s in range(6)}
    found = compare_methods({**clear, "c": rival})
    assert found.find_significant("a", found.best)
    assert not found.find_significant("b", "c")
    assert not found.real


def test_smaller_values_win_where_the_metric_says_so():
    runs = {"a": {0: 0.10, 1: 0.12, 2: 0.11}, "b": {0: 0.20, 1: 0.23, 2: 0.21}}
    assert (compare_methods(runs).best, compare_methods(runs).real) == ("b", True)
    found = compare_methods(runs, smaller_is_better=is_better("eer", 0.0, 1.0))
    assert (found.best, found.real) == ("a", True)


def test_a_lead_that_the_common_seeds_contradict_is_not_real():
    # b has the better mean thanks to seeds that a never ran, and loses clearly on those that both ran
    runs = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.50, 1: 0.53, 2: 0.51, 3: 0.9, 4: 0.9, 5: 0.9}}
    for turned in (runs, dict(reversed(runs.items()))):
        found = compare_methods(turned)
        assert found.best == "b"
        assert found.find_significant("a", "b")
        assert not found.real


@pytest.mark.parametrize("poor", [{}, {0: 0.1}, {8: 0.1, 9: 0.1}])
def test_a_method_without_common_repeats_is_never_told_apart_and_still_counts(poor):
    runs = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.70, 1: 0.73, 2: 0.71}}
    assert compare_methods(runs).real
    found = compare_methods({**runs, "poor": poor})
    assert found.best == "b"
    assert not found.real
    assert [math.isnan(row.adjusted) for row in found.rows] == [False, True, True]
    assert found.rows[0].adjusted == pytest.approx(3 * found.rows[0].p)
    assert found.find_significant("a", "b")
    assert not found.find_significant("b", "poor")


def test_equal_methods_tie_and_the_first_is_called_best():
    same_runs = {0: 0.5, 1: 0.6}
    found = compare_methods({"first": same_runs, "second": same_runs})
    assert (found.best, found.real, found.rows[0].p) == ("first", False, 1.0)
    alone = compare_methods({"alone": same_runs})
    assert (alone.best, alone.real, alone.rows) == ("alone", False, ())


def test_wrong_names_and_empty_tables_are_refused():
    runs = {"margin": {0: 0.5, 1: 0.6}, "triplet": {0: 0.4, 1: 0.3}}
    with pytest.raises(ValueError, match="did you mean 'margin'"):
        compare_methods(runs, baseline="margn")
    with pytest.raises(ValueError, match="did you mean 'triplet'"):
        compare_methods(runs).find_significant("margin", "triplets")
    for nothing in ({}, {"a": {}}):
        with pytest.raises(ValueError, match="nothing to compare"):
            compare_methods(nothing)


tables = st.dictionaries(st.sampled_from("abcde"), st.dictionaries(st.integers(0, 5), results, min_size=1), min_size=2)


@given(tables, st.booleans(), st.randoms())
@settings(deadline=None)
def test_comparisons_mind_no_order_and_swap_with_the_sign(runs, smaller, source):
    found = compare_methods(runs, smaller_is_better=smaller)
    assert len(found.rows) == math.comb(len(runs), 2)
    for row in found.rows:
        assert math.isnan(row.p) or row.p <= row.adjusted <= 1
    names = [*runs]
    source.shuffle(names)
    shuffled = compare_methods({name: runs[name] for name in names}, smaller_is_better=smaller)
    mirrored = compare_methods(
        {m: {s: -v for s, v in seeds.items()} for m, seeds in runs.items()}, smaller_is_better=not smaller
    )
    assert mirrored.best == found.best
    assert mirrored.real == found.real
    for a, b in combinations(runs, 2):
        assert shuffled.find_significant(b, a) == found.find_significant(a, b) == mirrored.find_significant(a, b)
    if found.real:
        assert (shuffled.best, shuffled.real) == (found.best, True)


# experiments


def simulated(rng, methods, repeats=5, gain=0.0, seed_spread=0.01):
    """A table as repeats give it: a seed moves all methods together, each has its own noise, the first its gain."""
    seed_effect = rng.normal(0, seed_spread, repeats)
    noise = rng.normal(0, 0.004, (methods, repeats))
    values = 0.6 + seed_effect + noise
    values[0] += gain
    return {f"method {m}": dict(enumerate(row)) for m, row in enumerate(values.tolist())}


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_one_method_under_two_names_differs_as_often_as_the_level_says(level):
    rng = np.random.default_rng(20)
    wrong = sum(
        compare_methods(simulated(rng, 2), level=level).find_significant("method 0", "method 1") for _ in range(200)
    )
    assert stats.binom.ppf(0.0005, 200, level) <= wrong <= stats.binom.ppf(0.9995, 200, level)


@pytest.mark.parametrize("baseline", [None, "method 0"])
def test_among_six_equal_methods_any_difference_is_rarer_than_the_level(baseline):
    rng = np.random.default_rng(21)
    uncorrected = corrected = 0
    for _ in range(200):
        found = compare_methods(simulated(rng, 6), baseline=baseline)
        corrected += any(row.adjusted <= found.level for row in found.rows)
        uncorrected += any(row.p <= found.level for row in found.rows)
    bound = stats.binom.ppf(0.9995, 200, 0.05)
    assert corrected <= bound
    assert uncorrected > bound  # so that the correction has something to correct


def test_a_real_difference_is_found():
    rng = np.random.default_rng(22)
    found = [compare_methods(simulated(rng, 4, gain=0.03, seed_spread=0.03)) for _ in range(50)]
    assert sum(each.best == "method 0" and each.real for each in found) >= 45
    # pairing is what finds it: unpaired intervals, which the seeds make wide, overlap
    apart = 0
    for each in found:
        first, second = each.intervals["method 0"], each.intervals["method 1"]
        apart += first.mean - first.half_width > second.mean + second.half_width
    assert apart < 25


def test_a_method_that_did_not_train_is_neither_best_nor_beaten():
    values = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.70, 1: 0.73, 2: 0.71}, "start": {0: 0.5, 1: 0.5, 2: 0.5}}
    assert compare_methods(values).find_significant("b", "start")
    found = compare_methods(values, untrained=["start"])
    assert not found.find_significant("b", "start")
    assert math.isnan(next(row.adjusted for row in found.rows if row.second == "start"))
    assert (found.best, found.real, found.leader) == ("b", True, "b")
    # the correction is as strict as with it
    pair = {name: values[name] for name in ("a", "b")}
    assert found.rows[0].adjusted == pytest.approx(3 * compare_methods(pair).rows[0].adjusted)
    ahead = {**values, "start": {0: 0.9, 1: 0.9, 2: 0.9}}
    found = compare_methods(ahead, untrained=["start"])
    assert (found.best, found.real, found.leader) == ("start", False, "b")
    assert not compare_methods(values, untrained=["a", "start"]).real  # nothing is left to beat
    with pytest.raises(ValueError, match="there is no method 'strat'"):
        compare_methods(values, untrained=["strat"])
