"""The plan of an adaptation: a short trial turns minutes into numbers of splits, candidates and steps."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from kinfold.adaptation.class_splits import FOLDS

MEASUREMENTS = 4  # of a training, after its start
KEPT = 3  # one of so many candidates survives a round of the race
_REPEATS = (5, 4, 3, 2)  # of the splits for linear maps
_LINEAR_SHARE = 0.3  # of the time, at most, before repeats are reduced
_LATER_REPEATS = 0.6  # of the time of the first, since they measure the best maps only
_FEATURE_SHARE = 0.4  # of the time for steps on features, where there are images to fine-tune on
_TUNE_STEPS = (400, 200, 100, 50, 25)
TUNE_MEASUREMENTS = 2  # of a fine-tuning, after its start
TUNE_RACE = 2  # candidates of fine-tuning
_RESIDUAL_COST = 2.5  # of a step of the residual head, in steps of the linear one


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
        tune_steps: Training steps of an image network; 0 trains none.
        seconds: What all of it will take, for the progress that is shown; 0 where nobody knows.
    """

    repeats: int
    head_repeats: int
    head_steps: int
    race: int
    residual: bool
    max_rows: int = 3000
    threads: int = 1
    tune_steps: int = 0
    seconds: float = 0.0

    def to_table(self) -> dict[str, Any]:
        """Return the plan for a JSON file."""
        return asdict(self)


# Plans with a name do the same on every machine, however busy it is.
PLANS = {
    "quick": AdaptationPlan(repeats=2, head_repeats=1, head_steps=200, race=4, residual=False, tune_steps=20),
    "standard": AdaptationPlan(repeats=3, head_repeats=2, head_steps=400, race=8, residual=False, tune_steps=100),
    "thorough": AdaptationPlan(repeats=5, head_repeats=3, head_steps=600, race=30, residual=True, tune_steps=400),
}
# What a race of heads may cost, best first: steps, candidates of the race, repeats of the splits, and whether residual
# heads are trained too. The first that fits into the time is taken.
_RACES = (
    (800, 30, 3, True),
    (600, 30, 3, True),
    (600, 20, 2, True),
    (400, 20, 2, True),
    (400, 12, 2, True),
    (400, 8, 2, True),
    (400, 12, 2, False),
    (400, 8, 2, False),
    (300, 8, 2, False),
    (300, 6, 2, False),
    (200, 6, 2, False),
    (200, 4, 2, False),
    (200, 4, 1, False),
    (100, 2, 1, False),
)


@dataclass(frozen=True)
class TrialTimes:
    """Seconds that a trial took.

    Attributes:
        split: All linear maps on one split.
        step: One training step of a linear head.
        overhead: What one training takes beside its steps: building, starting, measuring.
        tune_step: One training step of an image network; 0 where there are no images.
        tune_overhead: What one training of it takes beside its steps: decoding, embedding, measuring.
        busy: Seconds for each second of processor time, at least 1; more where other processes share the machine.
    """

    split: float
    step: float
    overhead: float
    tune_step: float = 0.0
    tune_overhead: float = 0.0
    busy: float = 1.0


def make_plan(times: TrialTimes, minutes: float, max_rows: int, threads: int) -> AdaptationPlan:
    """Choose the largest plan that fits into the minutes; at least the linear maps on two repeats.

    Linear maps get more repeats only while they take less than a third of the time, so that time is left for heads.

    Args:
        times: What the trial took.
        minutes: Time for all of the plan; with 0 or less, the smallest plan is made.
        max_rows: Rows of held-out classes that are measured on a split.
        threads: Threads of torch.

    Examples:
        >>> plan = make_plan(TrialTimes(split=2.0, step=0.005, overhead=0.5), minutes=10, max_rows=3000, threads=1)
        >>> plan.repeats, plan.head_steps, plan.race
        (5, 600, 30)
    """
    seconds = 60 * minutes
    feature_seconds = seconds * (_FEATURE_SHARE if times.tune_step else 1.0)
    repeats = next(
        (count for count in _REPEATS if estimate_linear(times, count) <= _LINEAR_SHARE * feature_seconds), _REPEATS[-1]
    )
    plan = AdaptationPlan(repeats, 0, 0, 0, False, max_rows, threads)
    for steps, race, head_repeats, residual in _RACES:
        larger = replace(plan, head_steps=steps, race=race, head_repeats=head_repeats, residual=residual)
        if residual and times.tune_step:
            continue  # images have fine-tuning instead
        if head_repeats <= repeats and estimate_seconds(times, larger) <= feature_seconds:
            plan = larger
            break
    if times.tune_step and plan.head_steps:
        tuned = (replace(plan, tune_steps=steps) for steps in _TUNE_STEPS)
        plan = next((each for each in tuned if estimate_seconds(times, each) <= seconds), plan)
    return replace(plan, seconds=estimate_seconds(times, plan))


def estimate_linear(times: TrialTimes, repeats: int) -> float:
    """Return the seconds that the linear maps take."""
    return FOLDS * times.split * (1 + _LATER_REPEATS * (repeats - 1))


def estimate_seconds(times: TrialTimes, plan: AdaptationPlan) -> float:
    """Return the seconds that a plan takes, at most."""
    linear = estimate_linear(times, plan.repeats)
    steps, race = plan.head_steps, plan.race
    if not steps:
        return linear
    finalists = 2 * FOLDS * plan.head_repeats
    # (trainings, steps of each, cost of a step): two rounds of the race, finalists, the final fit, residual heads
    parts = [
        (2 * race, steps // 4, 1.0),
        (FOLDS * -(-race // KEPT), steps // 2, 1.0),
        (finalists, steps, 1.0),
        (1, steps, _RESIDUAL_COST if plan.residual else 1.0),
    ]
    if plan.residual:
        parts.append((2 * FOLDS, steps // 2, _RESIDUAL_COST))
        parts.append((finalists, steps, _RESIDUAL_COST))
    tuned = plan.tune_steps if times.tune_step else 0
    if tuned:  # a race on one fold of each half, the finalists on one repeat, the final fit
        trainings = [(2 * TUNE_RACE, tuned // TUNE_MEASUREMENTS), (2 * FOLDS, tuned), (1, tuned)]
        linear += sum(count * (times.tune_overhead + each * times.tune_step) for count, each in trainings)
    return linear + sum(count * (times.overhead + each * cost * times.step) for count, each, cost in parts)
