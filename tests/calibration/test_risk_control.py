"""Risk control: the threshold is the smallest that keeps the bound, and new units keep the rate on the average."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfold.calibration import control_rate, smallest_certifiable_rate
from kinfold.calibration.risk_control import find_threshold


def bound(scores, units, threshold):
    """(sum of the shares of accepted scores + 1) / (units + 1), by loops."""
    count = max(units) + 1
    shares = []
    for unit in range(count):
        unit_scores = [score for score, number in zip(scores, units, strict=True) if number == unit]
        shares.append(sum(score >= threshold for score in unit_scores) / len(unit_scores))
    return (sum(shares) + 1) / (count + 1)


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.lists(st.integers(-4, 4), min_size=1, max_size=5), min_size=1, max_size=12),
    rate=st.floats(0.08, 1.0),
)
def test_the_threshold_is_the_smallest_that_keeps_the_bound(values, rate):
    scores = [value / 4 for unit in values for value in unit]
    units = [number for number, unit in enumerate(values) for _ in unit]
    arguments = (torch.tensor(scores, dtype=torch.float64), torch.tensor(units))
    if rate < smallest_certifiable_rate(len(values)) - 1e-9:
        with pytest.raises(ValueError, match="cannot be certified"):
            control_rate(*arguments, rate)
        return
    threshold = control_rate(*arguments, rate)
    assert bound(scores, units, threshold) <= rate + 1e-9
    lower = [score for score in scores if score < threshold]
    if lower and threshold > -1:
        assert bound(scores, units, max(lower)) > rate  # accepting one more value breaks it


def test_new_units_keep_the_rate_on_the_average_and_not_much_less():
    source = np.random.default_rng(0)
    realized = []
    for _ in range(3000):
        means = source.normal(size=30)  # 29 units and a new one
        scores = torch.from_numpy(means[:, None] + source.normal(size=(30, 4)))
        units = torch.arange(29).repeat_interleave(4)
        threshold = control_rate(scores[:29].flatten(), units, 0.1)
        realized.append(float((scores[29] >= threshold).double().mean()))
    error = np.std(realized) / len(realized) ** 0.5
    assert np.mean(realized) < 0.1 + 3 * error
    assert np.mean(realized) > 0.1 - 2 / 30 - 3 * error  # the published lower bound


def test_smallest_rate_and_wrong_rates():
    assert smallest_certifiable_rate(999) == 0.001
    scores, units = torch.tensor([0.5, 0.25]), torch.tensor([0, 1])
    assert control_rate(scores, units, 1 / 3) > 0.5  # nothing may be accepted
    assert control_rate(scores, units, 1.0) == -1.0
    for rate in (0.0, 1.5):
        with pytest.raises(ValueError, match="rate"):
            control_rate(scores, units, rate)


def test_equal_scores_are_accepted_together_or_not_at_all():
    scores = torch.tensor([0.5, 0.5, 0.5, 0.1])
    assert find_threshold(scores, torch.ones(4), budget=2.0) > 0.5
    assert 0.1 < find_threshold(scores, torch.ones(4), budget=3.0) <= 0.5
