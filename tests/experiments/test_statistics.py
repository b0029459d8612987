"""Intervals, paired tests and Holm's correction, against mpmath, scipy.stats, naive loops and simulated experiments."""

import math
from itertools import combinations

import mpmath
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
from kinfold.training.loop.selection import is_better

# multiples of 2^-20: sums and differences are exact, so that nothing below depends on rounding
results = st.integers(-(2**20), 2**20).map(lambda n: n / 2**20)
probabilities = st.floats(0, 1) | st.just(math.nan)


def same(result, expected):
    return result == pytest.approx(expected, rel=1e-12, abs=1e-15, nan_ok=True)


# Student's t, to many digits


def student_tail(t, df):
    """P(T > t) for t >= 0 with 40 digits, from the incomplete beta function."""
    with mpmath.workdps(40):
        x = mpmath.mpf(df) / (mpmath.mpf(df) + mpmath.mpf(t) ** 2)
        return mpmath.betainc(mpmath.mpf(df) / 2, mpmath.mpf(1) / 2, 0, x, regularized=True) / 2


def exact_t(values):
    """Mean over standard error, and the standard error, without rounding in between."""
    with mpmath.workdps(40):
        exact = [mpmath.mpf(value) for value in values]
        mean = mpmath.fsum(exact) / len(exact)
        variance = mpmath.fsum((value - mean) ** 2 for value in exact) / (len(exact) - 1)
        error = mpmath.sqrt(variance / len(exact))
        return abs(mean) / error, error


DEGREES = [1, 2, 3, 4, 5, 9, 10, 29, 30, 100, 199, 200]


@pytest.mark.parametrize("df", DEGREES)
def test_p_equals_the_tails_of_students_t_far_out_too(df):
    deviations = np.random.default_rng(df).integers(-(2**20), 2**20, df + 1) / 2**20
    spread = float(np.std(deviations, ddof=1) / math.sqrt(df + 1))
    for t in (1e-3, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1e4):
        differences = [float(value) for value in deviations - deviations.mean() + t * spread]
        expected = 2 * student_tail(exact_t(differences)[0], df)
        if expected > 1e-290:
            test = paired_test(differences, [0.0] * len(differences)).p
            assert test == pytest.approx(float(expected), rel=1e-9, abs=0), t


@pytest.mark.parametrize("df", DEGREES)
@pytest.mark.parametrize("level", [0.01, 0.1, 0.5, 0.52, 0.6, 0.8, 0.95, 0.99, 0.999, 1 - 1e-6])
def test_half_widths_hold_the_quantiles_of_students_t(df, level):
    values = (np.random.default_rng(df).integers(-(2**20), 2**20, df + 1) / 2**20).tolist()
    quantile = mpmath.mpf(compute_interval(values, level).half_width) / exact_t(values)[1]
    assert float(student_tail(quantile, df)) == pytest.approx((1 - level) / 2, rel=1e-9, abs=0)


def test_closed_forms_of_one_and_two_degrees():
    for t in (1e-3, 0.3, 1.0, 7.0, 1e5):
        assert float(student_tail(t, 1)) == pytest.approx(math.atan2(1, t) / math.pi, rel=1e-13, abs=0)
        root = math.sqrt(2 + t * t)
        assert float(student_tail(t, 2)) == pytest.approx(1 / (root * (root + t)), rel=1e-13, abs=0)
        # differences t - 1 and t + 1 have mean t and standard error 1
        assert paired_test([t - 1, t + 1], [0.0, 0.0]).p == pytest.approx(2 * math.atan2(1, t) / math.pi, rel=1e-10)


@pytest.mark.parametrize(("df", "quantile"), [(1, 12.7062047361747), (2, 4.30265272974946), (9, 2.26215716279820)])
def test_half_widths_of_printed_tables(df, quantile):
    values = [0.0, 1.0] + [0.5] * (df - 1)
    error = math.sqrt(0.5 / df / (df + 1))
    assert compute_interval(values).half_width == pytest.approx(quantile * error, rel=1e-12)


# intervals


@given(st.lists(results, min_size=2, max_size=30), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
@settings(deadline=None)
def test_interval_equals_scipy(values, level):
    interval = compute_interval(values, level)
    assert interval.count == len(values)
    assert interval.mean == pytest.approx(np.mean(values), rel=1e-12, abs=1e-15)
    expected = stats.t.ppf((1 + level) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert interval.half_width == pytest.approx(expected, rel=1e-10, abs=1e-15)


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    covered = 0
    for values in rng.normal(0.6, 0.01, (1000, 4)).tolist():
        interval = compute_interval(values, 0.9)
        covered += abs(interval.mean - 0.6) <= interval.half_width
    assert stats.binom.ppf(0.0005, 1000, 0.9) <= covered <= stats.binom.ppf(0.9995, 1000, 0.9)


def test_one_repeat_has_an_unknown_half_width():
    interval = compute_interval([0.5])
    assert (interval.mean, interval.count) == (0.5, 1)
    assert math.isnan(interval.half_width)


def test_equal_repeats_have_no_width():
    assert compute_interval([0.25, 0.25, 0.25]) == Interval(0.25, 0.0, 3)


def test_very_small_deviations_do_not_vanish():
    expected = 12.706204736174698 * 1e-200
    assert compute_interval([1e-200, 3e-200]).half_width == pytest.approx(expected, rel=1e-10, abs=0)


@pytest.mark.parametrize("invalid", [math.nan, math.inf, -math.inf, 1.7e308])
def test_values_that_are_not_finite_are_refused(invalid):
    with pytest.raises(ValueError, match="finite"):
        compute_interval([0.5, invalid])
    for first, second in (([0.5, invalid], [0.1, 0.2]), ([0.1, 0.2], [0.5, invalid])):
        with pytest.raises(ValueError, match="finite"):
            paired_test(first, second)
    with pytest.raises(ValueError, match="finite"):
        compare_methods({"a": {0: invalid}, "b": {0: 0.5}})


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
    result, expected = paired_test(first, second), stats.ttest_rel(first, second)
    assert result.p == pytest.approx(float(expected.pvalue), rel=1e-8, abs=1e-14)
    limits = expected.confidence_interval(0.95)
    assert result.difference.mean - result.difference.half_width == pytest.approx(
        float(limits.low), rel=1e-8, abs=1e-12
    )
    assert result.difference.count == len(pairs)


@given(st.lists(st.tuples(results, results), min_size=2, max_size=12), st.randoms())
@settings(deadline=None)
def test_p_depends_neither_on_the_order_of_seeds_nor_of_methods(pairs, source):
    first, second = ([*side] for side in zip(*pairs, strict=True))
    test, swapped = paired_test(first, second), paired_test(second, first)
    assert same(swapped.p, test.p)
    assert same(swapped.difference.mean, -test.difference.mean)
    source.shuffle(pairs)
    assert same(paired_test(*([*side] for side in zip(*pairs, strict=True))).p, test.p)


@given(st.lists(st.tuples(results, results), min_size=2, max_size=12))
@settings(deadline=None)
def test_interval_leaves_zero_out_exactly_where_p_is_small(pairs):
    test = paired_test(*([*side] for side in zip(*pairs, strict=True)), level=0.9)
    assume(abs(test.p - 0.1) > 1e-9)
    assert (abs(test.difference.mean) > test.difference.half_width) == (test.p < 0.1)


def test_identical_results_have_p_one():
    assert paired_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]) == PairedTest(Interval(0.0, 0.0, 3), 1.0)


def test_a_constant_difference_is_not_significant():
    for first in ([0.75, 0.5], [0.7, 0.8, 0.9, 0.6]):  # the second one is constant but for rounding
        second = [value - 0.1 for value in first]
        test = paired_test(first, second)
        assert test.difference.mean == pytest.approx(0.1)
        assert math.isnan(test.p)
        assert math.isnan(test.difference.half_width)
    assert not compare_methods({"a": {0: 0.7, 1: 0.8, 2: 0.9}, "b": {0: 0.6, 1: 0.7, 2: 0.8}}).best_is_significant


def test_differences_that_are_only_rounding_are_identical_results():
    assert 0.1 + 0.2 != 0.3
    assert paired_test([0.1 + 0.2, 0.5, 0.3], [0.3, 0.5, 0.1 + 0.2]).p == 1


def test_fewer_than_two_pairs_cannot_be_tested():
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
    result = [min((v for v in levels if i in rejected(v)), default=1.0) for i in range(len(family))]
    return [math.nan if math.isnan(p) else value for p, value in zip(p_values, result, strict=True)]


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
    for invalid in (-0.01, 1.01, math.inf):
        with pytest.raises(ValueError, match="between 0 and 1"):
            adjust_holm([0.5, invalid])


# comparisons of methods


def test_pairs_are_tested_on_common_seeds_and_corrected_as_one_family():
    runs = {
        "a": {0: 0.60, 1: 0.62, 2: 0.61, 7: 0.1},
        "b": {2: 0.72, 1: 0.73, 0: 0.70},
        "c": {1: 0.65, 2: 0.60, 3: 0.63, 0: 0.61},
    }
    comparison = compare_methods(runs)
    assert [row[:2] for row in comparison.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    for row in comparison.pairs:
        first, second = ([runs[name][seed] for seed in (0, 1, 2)] for name in row[:2])
        expected = paired_test(first, second)
        assert same([*row[2:5]], [expected.difference.mean, expected.difference.half_width, expected.p])
    assert [row.adjusted for row in comparison.pairs] == adjust_holm([row.p for row in comparison.pairs])
    assert comparison.best == "b"
    assert comparison.intervals["a"] == compute_interval([0.60, 0.62, 0.61, 0.1])  # over its own repeats
    assert comparison.is_significant("a", "b")
    assert comparison.is_significant("b", "a")
    assert not comparison.is_significant("a", "c")
    assert not comparison.is_significant("a", "a")


def test_with_a_baseline_only_differences_from_it_are_tested():
    runs = {"a": {0: 1.0, 1: 1.1, 2: 1.1}, "old": {0: 0.5, 1: 0.7, 2: 0.6}, "c": {0: 0.9, 1: 0.4, 2: 0.5}}
    comparison = compare_methods(runs, baseline="old")
    assert [row[:2] for row in comparison.pairs] == [("a", "old"), ("c", "old")]
    assert comparison.pairs[0].difference == pytest.approx(1.4 / 3)
    assert comparison.pairs[0].adjusted == pytest.approx(2 * comparison.pairs[0].p)
    assert comparison.is_significant("old", "a")
    with pytest.raises(ValueError, match="not compared"):
        comparison.is_significant("a", "c")
    assert comparison.best == "a"
    assert not comparison.best_is_significant  # nobody asked whether a differs from c
    assert compare_methods({name: runs[name] for name in ("a", "old")}, baseline="old").best_is_significant


def test_the_best_is_significant_only_when_it_differs_from_every_other():
    clear = {"a": {s: 0.5 + 0.01 * (s % 3) for s in range(6)}, "b": {s: 0.7 + 0.01 * (s % 2) for s in range(6)}}
    assert compare_methods(clear).best_is_significant
    rival = {s: clear["b"][s] + (-1) ** (s // 2) * 0.005 for s in range(6)}
    comparison = compare_methods({**clear, "c": rival})
    assert comparison.is_significant("a", comparison.best)
    assert not comparison.is_significant("b", "c")
    assert not comparison.best_is_significant


def test_smaller_values_win_where_the_metric_says_so():
    runs = {"a": {0: 0.10, 1: 0.12, 2: 0.11}, "b": {0: 0.20, 1: 0.23, 2: 0.21}}
    assert (compare_methods(runs).best, compare_methods(runs).best_is_significant) == ("b", True)
    comparison = compare_methods(runs, smaller_is_better=is_better("eer", 0.0, 1.0))
    assert (comparison.best, comparison.best_is_significant) == ("a", True)


def test_a_lead_that_the_common_seeds_contradict_is_not_significant():
    # b has the better mean thanks to seeds that a never ran, and loses clearly on those that both ran
    runs = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.50, 1: 0.53, 2: 0.51, 3: 0.9, 4: 0.9, 5: 0.9}}
    for turned in (runs, dict(reversed(runs.items()))):
        comparison = compare_methods(turned)
        assert comparison.best == "b"
        assert comparison.is_significant("a", "b")
        assert not comparison.best_is_significant


@pytest.mark.parametrize("poor", [{}, {0: 0.1}, {8: 0.1, 9: 0.1}])
def test_a_method_without_common_repeats_never_differs_significantly_and_still_counts(poor):
    runs = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.70, 1: 0.73, 2: 0.71}}
    assert compare_methods(runs).best_is_significant
    comparison = compare_methods({**runs, "poor": poor})
    assert comparison.best == "b"
    assert not comparison.best_is_significant
    assert [math.isnan(row.adjusted) for row in comparison.pairs] == [False, True, True]
    assert comparison.pairs[0].adjusted == pytest.approx(3 * comparison.pairs[0].p)
    assert comparison.is_significant("a", "b")
    assert not comparison.is_significant("b", "poor")


def test_equal_methods_tie_and_the_first_is_called_best():
    same_runs = {0: 0.5, 1: 0.6}
    comparison = compare_methods({"first": same_runs, "second": same_runs})
    assert (comparison.best, comparison.best_is_significant, comparison.pairs[0].p) == ("first", False, 1.0)
    alone = compare_methods({"alone": same_runs})
    assert (alone.best, alone.best_is_significant, alone.pairs) == ("alone", False, ())


def test_wrong_names_and_empty_tables_are_refused():
    runs = {"margin": {0: 0.5, 1: 0.6}, "triplet": {0: 0.4, 1: 0.3}}
    with pytest.raises(ValueError, match="did you mean 'margin'"):
        compare_methods(runs, baseline="margn")
    with pytest.raises(ValueError, match="did you mean 'triplet'"):
        compare_methods(runs).is_significant("margin", "triplets")
    for nothing in ({}, {"a": {}}):
        with pytest.raises(ValueError, match="nothing to compare"):
            compare_methods(nothing)


tables = st.dictionaries(st.sampled_from("abcde"), st.dictionaries(st.integers(0, 5), results, min_size=1), min_size=2)


@given(tables, st.booleans(), st.randoms())
@settings(deadline=None)
def test_comparisons_do_not_depend_on_order_and_swap_with_the_sign(runs, smaller, source):
    comparison = compare_methods(runs, smaller_is_better=smaller)
    assert len(comparison.pairs) == math.comb(len(runs), 2)
    for row in comparison.pairs:
        assert math.isnan(row.p) or row.p <= row.adjusted <= 1
    names = [*runs]
    source.shuffle(names)
    shuffled = compare_methods({name: runs[name] for name in names}, smaller_is_better=smaller)
    mirrored = compare_methods(
        {m: {s: -v for s, v in seeds.items()} for m, seeds in runs.items()}, smaller_is_better=not smaller
    )
    assert mirrored.best == comparison.best
    assert mirrored.best_is_significant == comparison.best_is_significant
    for a, b in combinations(runs, 2):
        assert shuffled.is_significant(b, a) == comparison.is_significant(a, b) == mirrored.is_significant(a, b)
    if comparison.best_is_significant:
        assert (shuffled.best, shuffled.best_is_significant) == (comparison.best, True)


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
    significant = sum(
        compare_methods(simulated(rng, 2), level=level).is_significant("method 0", "method 1") for _ in range(200)
    )
    assert stats.binom.ppf(0.0005, 200, level) <= significant <= stats.binom.ppf(0.9995, 200, level)


@pytest.mark.parametrize("baseline", [None, "method 0"])
def test_among_six_equal_methods_any_difference_is_rarer_than_the_level(baseline):
    rng = np.random.default_rng(21)
    uncorrected = corrected = 0
    for _ in range(200):
        comparison = compare_methods(simulated(rng, 6), baseline=baseline)
        corrected += any(row.adjusted <= comparison.level for row in comparison.pairs)
        uncorrected += any(row.p <= comparison.level for row in comparison.pairs)
    bound = stats.binom.ppf(0.9995, 200, 0.05)
    assert corrected <= bound
    assert uncorrected > bound  # so that the correction has something to correct


def test_a_real_difference_is_found():
    rng = np.random.default_rng(22)
    result = [compare_methods(simulated(rng, 4, gain=0.03, seed_spread=0.03)) for _ in range(50)]
    assert sum(each.best == "method 0" and each.best_is_significant for each in result) >= 45
    # pairing is what finds it: unpaired intervals, which the seeds make wide, overlap
    apart = 0
    for each in result:
        first, second = each.intervals["method 0"], each.intervals["method 1"]
        apart += first.mean - first.half_width > second.mean + second.half_width
    assert apart < 25


def test_a_method_that_did_not_train_is_neither_best_nor_beaten():
    values = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.70, 1: 0.73, 2: 0.71}, "start": {0: 0.5, 1: 0.5, 2: 0.5}}
    assert compare_methods(values).is_significant("b", "start")
    comparison = compare_methods(values, untrained=["start"])
    assert not comparison.is_significant("b", "start")
    assert math.isnan(next(row.adjusted for row in comparison.pairs if row.second == "start"))
    assert (comparison.best, comparison.best_is_significant, comparison.best_trained) == ("b", True, "b")
    # the correction is as strict as with it
    pair = {name: values[name] for name in ("a", "b")}
    assert comparison.pairs[0].adjusted == pytest.approx(3 * compare_methods(pair).pairs[0].adjusted)
    ahead = {**values, "start": {0: 0.9, 1: 0.9, 2: 0.9}}
    comparison = compare_methods(ahead, untrained=["start"])
    assert (comparison.best, comparison.best_is_significant, comparison.best_trained) == ("start", False, "b")
    assert not compare_methods(values, untrained=["a", "start"]).best_is_significant  # nothing is left to beat
    with pytest.raises(ValueError, match="there is no method 'strat'"):
        compare_methods(values, untrained=["strat"])


def test_reprs_are_short():
    assert repr(compute_interval([0.61, 0.63, 0.62])) == "Interval(0.62 ± 0.0248, count=3)"
    assert repr(compute_interval([0.5])) == "Interval(0.5, count=1)"
    runs = {"a": {0: 0.60, 1: 0.62, 2: 0.61}, "b": {0: 0.70, 1: 0.73, 2: 0.71}}
    best = "best='b' (0.7133 ± 0.0379, significantly better than all others)"
    assert repr(compare_methods(runs)) == f"MethodComparison({best}, 2 methods, level=0.05)"
    assert "not significantly better" in repr(compare_methods({"a": runs["a"]}))
