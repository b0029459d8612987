"""Student's t distribution: against scipy, closed forms, and itself."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kinfold.experiments.student import student_quantile, student_tail

# multiples of 2^-20: sums and differences are exact, so that nothing below depends on rounding
results = st.integers(-(2**20), 2**20).map(lambda n: n / 2**20)
probabilities = st.floats(0, 1) | st.just(math.nan)


def student_cdf(t, df):
    return student_tail(-t, df)


def same(found, expected):
    return found == pytest.approx(expected, rel=1e-12, abs=1e-15, nan_ok=True)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 10, 29, 30, 100, 199, 200])
def test_tails_equal_scipy_far_out_too(df):
    for t in (0.0, 1e-3, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1e4, 1e11):
        expected = float(stats.t.sf(t, df))
        if expected > 1e-290:
            assert student_tail(t, df) == pytest.approx(expected, rel=1e-10, abs=0)
        assert student_cdf(t, df) == pytest.approx(float(stats.t.cdf(t, df)), rel=1e-10, abs=0)
        assert student_cdf(-t, df) == student_tail(t, df)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 10, 29, 30, 100, 199, 200])
def test_quantiles_equal_scipy_to_tails_of_1e_12(df):
    for p in (1e-12, 1e-9, 1e-6, 1e-3, 0.025, 0.2, 0.24, 0.26, 0.4, 0.45, 0.6, 0.8, 0.975, 0.995, 1 - 1e-6, 1 - 1e-9):
        assert student_quantile(p, df) == pytest.approx(float(stats.t.ppf(p, df)), rel=1e-10, abs=0)


def test_closed_forms_of_one_and_two_degrees():
    for t in (1e-9, 1e-6, 0.3, 1.0, 7.0, 1e5):  # scipy loses the first of them
        assert student_tail(t, 1) == pytest.approx(math.atan2(1, t) / math.pi, rel=1e-13, abs=0)
        root = math.sqrt(2 + t * t)
        assert student_tail(t, 2) == pytest.approx(1 / (root * (root + t)), rel=1e-13, abs=0)
    # near the middle the density, 3/8, is all that counts; scipy has no correct digit here
    assert student_quantile(0.5 + 2**-30, 4) == pytest.approx(2**-30 / 0.375, rel=1e-12, abs=0)


@given(st.floats(1e-12, 1 - 1e-12), st.integers(1, 200))
@settings(deadline=None, max_examples=60)
def test_quantile_inverts_the_distribution_function(p, df):
    t = student_quantile(p, df)
    assert student_cdf(t, df) == pytest.approx(p, rel=1e-11, abs=0)
    # q(p) is minus q(1 - p) as far as 1 - p is exact
    if p >= 0.5:
        assert student_quantile(1 - p, df) == -t


@given(st.integers(1, 500), st.integers(-300, 300), st.integers(-300, 300))
@settings(deadline=None)
def test_tail_falls_and_takes_any_degrees(df, first, second):
    df, low, high = df / 10, min(first, second) / 10, max(first, second) / 10
    assert student_tail(low, df) >= student_tail(high, df) - 1e-15
    assert student_tail(low, df) == pytest.approx(float(stats.t.sf(low, df)), rel=1e-10, abs=0)


def test_ends_of_the_distribution():
    assert (student_quantile(0, 3), student_quantile(0.5, 3), student_quantile(1, 3)) == (-math.inf, 0, math.inf)
    assert (student_cdf(math.inf, 2), student_cdf(-math.inf, 2), student_cdf(0, 2)) == (1, 0, 0.5)
    assert math.isnan(student_cdf(math.nan, 2))
    for p, df in ((-0.1, 3), (1.1, 3), (math.nan, 3), (0.5, 0), (0.5, -1), (0.5, math.inf), (0.5, math.nan)):
        with pytest.raises(ValueError, match=r"between 0 and 1|positive and finite"):
            student_quantile(p, df)
