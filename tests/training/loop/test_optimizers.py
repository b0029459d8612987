"""Learning rate schedules and parameter groups."""

from hypothesis import given
from hypothesis import strategies as st

from kinfold.training.config.settings import ScheduleConfig
from kinfold.training.loop.optimizers import compute_lr_factor


@given(
    st.sampled_from(["constant", "cosine", "linear", "step", "milestones"]),
    st.integers(0, 20),
    st.integers(1, 200),
    st.floats(0, 1),
)
def test_schedules_rise_during_warmup_and_never_afterward(name, warmup, steps, floor):
    schedule = ScheduleConfig(name, warmup=warmup, every=7, at=[30, 60], factor=0.5, floor=floor)
    rates = [compute_lr_factor(schedule, step, warmup + steps) for step in range(warmup + steps)]
    assert all(0 <= rate <= 1 for rate in rates)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert rates[warmup] == (1.0 if name != "milestones" or warmup < 30 else rates[warmup])


def test_schedules_follow_their_formulas():
    assert [compute_lr_factor(ScheduleConfig("step", every=2), step, 6) for step in range(5)] == [
        1,
        1,
        0.1,
        0.1,
        0.1**2,
    ]
    assert [compute_lr_factor(ScheduleConfig("milestones", at=[1, 3]), step, 6) for step in range(4)] == [
        1,
        0.1,
        0.1,
        0.1**2,
    ]
    assert [compute_lr_factor(ScheduleConfig("linear", floor=0.5), step, 4) for step in range(5)] == [
        1,
        0.875,
        0.75,
        0.625,
        0.5,
    ]
