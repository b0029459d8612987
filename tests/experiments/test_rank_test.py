"""The signed-rank test against scipy and against the enumeration of all signs."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from kinfold.experiments import compare_methods
from kinfold.experiments.rank_test import rank_test


@pytest.mark.parametrize("count", [2, 3, 6, 10, 20])
def test_p_is_that_of_scipy_without_ties(count):
    draw = np.random.default_rng(count)
    for shift in (0.0, 0.5, 2.0):
        first, second = draw.normal(shift, size=count), draw.normal(size=count)
        expected = stats.wilcoxon(first, second, method="exact").pvalue
        assert rank_test(first.tolist(), second.tolist()).p == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_p_with_ties_and_zeros_counts_all_signs(seed):
    draw = np.random.default_rng(seed)
    differences = draw.integers(-3, 4, size=8).astype(float)
    ranks = stats.rankdata(abs(differences))[differences != 0]
    signs = differences[differences != 0] > 0
    center = ranks.sum() / 2
    observed = abs(ranks[signs].sum() - center)
    sums = [sum(r for r, s in zip(ranks, choice, strict=True) if s) for choice in product([0, 1], repeat=len(ranks))]
    expected = np.mean([abs(total - center) >= observed - 1e-9 for total in sums])
    assert rank_test(differences.tolist(), [0.0] * 8).p == pytest.approx(expected, abs=1e-12)


def test_identical_results_have_p_one_and_a_single_repeat_has_none():
    assert rank_test([0.5, 0.6], [0.5, 0.6]).p == 1.0
    assert math.isnan(rank_test([0.5], [0.4]).p)


def test_one_failed_run_hides_a_difference_from_the_t_test_only():
    first = [0.60 + 0.001 * i for i in range(10)]
    second = [value - 0.01 - 0.0001 * i for i, value in enumerate(first)]
    second[0] = first[0] - 0.5  # it diverged
    runs = {"a": dict(enumerate(first)), "b": dict(enumerate(second))}
    assert compare_methods(runs).pairs[0].p > 0.05
    assert compare_methods(runs, test="rank").pairs[0].p < 0.05


def test_an_unknown_test_is_refused():
    with pytest.raises(ValueError, match="'rank'"):
        compare_methods({"a": {0: 1.0}}, test="ranks")
