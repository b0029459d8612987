"""The plan of an adaptation: a short trial turns minutes into numbers of splits, candidates and steps."""

from dataclasses import asdict, dataclass
from typing import Any

from kinfold.adaptation.class_splits import FOLDS

# What a race of heads may cost, best first: steps, candidates of the race, repeats of the splits, and whether residual
# heads are trained too. The first that fits into the time is taken.
_RACES = (
    (800, 30, 3, True),
    (600, 30, 3, True),
    (600, 20, 2, True),
    (400, 20, 2, True),
    (400, 12, 2, True),
    (300, 12, 2, True),
    (300, 6, 2, True),
    (400, 6, 2, False),
    (300, 6, 2, False),
    (200, 4, 2, False),
    (100, 4, 2, False),
)
_REPEATS = (5, 4, 3, 2)  # of the splits for linear maps
_LINEAR_SHARE = 0.3  # of the time, at most, before repeats are reduced
_RESIDUAL_COST = 2.5  # of a step of the residual head, in steps of the linear one
MEASUREMENTS = 4  # of a training, after its start
KEPT = 3  # one of so many candidates survives a round of the race


@dataclass(frozen=True)
class AdaptationPlan:
    """What an adaptation will do; from here on every decision counts steps, not seconds.

    Attributes:
        repeats: Repeats of the class splits for linear maps, each with four splits.
        head_repeats: Those for trained heads.
        head_steps: Training steps of a head; 0 trains none.
        race: Candidates at the start of the race of linear heads.
        residual: Whether residual heads are trained.
        max_rows: Rows of held-out classes that are measured on a split, at most.
        threads: Threads of torch; another number would round differently.
    """

    repeats: int
    head_repeats: int
    head_steps: int
    race: int
    residual: bool
    max_rows: int
    threads: int

    def to_table(self) -> dict[str, Any]:
        """Return the plan for a JSON file."""
        return asdict(self)


@dataclass(frozen=True)
class TrialTimes:
    """Seconds that a trial took.

    Attributes:
        split: All linear maps on one split.
        step: One training step of a linear head.
        overhead: What one training takes beside its steps: building, starting, measuring.
    """

    split: float
    step: float
    overhead: float


def make_plan(times: TrialTimes, minutes: float, max_rows: int, threads: int) -> AdaptationPlan:
    """Choose the largest plan that fits into the minutes; at least the linear maps on two repeats.

    Args:
        times: What the trial took.
        minutes: Time for everything.
        max_rows: Rows of held-out classes that are measured on a split.
        threads: Threads of torch.

    Examples:
        >>> plan = make_plan(TrialTimes(split=2.0, step=0.005, overhead=0.5), minutes=10, max_rows=3000, threads=1)
        >>> plan.repeats, plan.head_steps, plan.race
        (5, 600, 30)
    """
    seconds = 60 * minutes
    repeats = next(
        (count for count in _REPEATS if count * FOLDS * times.split <= _LINEAR_SHARE * seconds), _REPEATS[-1]
    )
    left = seconds - repeats * FOLDS * times.split
    for steps, race, head_repeats, residual in _RACES:
        if head_repeats <= repeats and estimate_race(times, steps, race, head_repeats, residual) <= left:
            return AdaptationPlan(repeats, head_repeats, steps, race, residual, max_rows, threads)
    return AdaptationPlan(repeats, 0, 0, 0, False, max_rows, threads)


def estimate_race(times: TrialTimes, steps: int, race: int, repeats: int, residual: bool) -> float:
    """Return the seconds that the trained steps of the ladder and the final fit take, at most."""
    splits = FOLDS * repeats
    finalists = 2
    # (trainings, steps of each, cost of a step): two rounds of the race, finalists, the final fit, residual heads
    parts = [
        (2 * race, steps // 4, 1.0),
        (FOLDS * -(-race // KEPT), steps // 2, 1.0),
        (finalists * splits, steps, 1.0),
        (1, steps, _RESIDUAL_COST if residual else 1.0),
    ]
    if residual:
        parts.append((2 * 2 * finalists, steps // 2, _RESIDUAL_COST))
        parts.append((finalists * splits, steps, _RESIDUAL_COST))
    return sum(count * (times.overhead + each * cost * times.step) for count, each, cost in parts)
