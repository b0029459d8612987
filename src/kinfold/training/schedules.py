"""Learning rates over the steps, as a pure function of the step: there is nothing to save and nothing to forget."""

import math

from kinfold.training.config.settings import ScheduleConfig


def compute_factor(schedule: ScheduleConfig, step: int, steps: int) -> float:
    """What every learning rate is multiplied with at `step` (from 0) of `steps`.

    >>> [round(factor(Schedule("cosine", warmup=2), step, 6), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    done, whole = step - schedule.warmup, max(1, steps - schedule.warmup)
    share = min(1.0, done / whole)
    if schedule.name == "cosine":
        return schedule.floor + (1 - schedule.floor) * (1 + math.cos(math.pi * share)) / 2
    if schedule.name == "linear":
        return schedule.floor + (1 - schedule.floor) * (1 - share)
    if schedule.name == "step":
        return float(schedule.factor ** (done // schedule.every))
    if schedule.name == "milestones":
        return float(schedule.factor ** sum(step >= mark for mark in schedule.at))
    return 1.0
