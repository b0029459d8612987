"""The trained steps of the ladder: linear heads, residual heads, fine-tuning of an image network."""

from collections.abc import Sequence
from typing import Any

from kinfold.adaptation.candidates import (
    HeadCandidate,
    list_head_candidates,
    list_residual_candidates,
)
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.image_network import Tuner
from kinfold.adaptation.linear_stage import LinearStage
from kinfold.adaptation.measuring import Measurer
from kinfold.adaptation.plan import MEASUREMENTS, TUNE_MEASUREMENTS, AdaptationPlan
from kinfold.adaptation.race import Race, Winner
from kinfold.adaptation.recording import Measured, Recorder

Stage = tuple[list[Measured], dict[str, Winner], Sequence[ClassSplit]]


class TrainedStages:
    """Runs the race of each trained step; a step starts from what won the one before.

    Args:
        measurer: Measures heads.
        plan: How many candidates, splits and steps.
        linear: The linear maps, measured before the first trained step.
        recorder: Stores measurements.
        tuner: Trains an image network; None for features.
    """

    def __init__(
        self, measurer: Measurer, plan: AdaptationPlan, linear: LinearStage, recorder: Recorder, tuner: Tuner | None
    ) -> None:
        self.measurer, self.plan, self.linear, self.recorder, self.tuner = measurer, plan, linear, recorder, tuner
        self._heads: list[HeadCandidate] = []  # finalists, one of each half

    def list_skipped(self) -> set[str]:
        """Return the steps that there is no time for."""
        planned = {
            "linear head": self.plan.head_steps > 0,
            "residual head": self.plan.residual,
            "fine-tuning": self.plan.tune_steps > 0,
        }
        return {step for step, is_planned in planned.items() if not is_planned}

    def run(self, step: str) -> Stage:
        """Run a step.

        Returns:
            For each half the measurements of its finalist, what each name in them stands for, and the splits.
        """
        stages = {"linear head": self._race_heads, "residual head": self._add_residual, "fine-tuning": self._tune}
        return stages[step]()

    def _build_race(self, step: str, measure: Any, repeats: int) -> Race:
        return Race(step, measure, [split for split in self.linear.splits if split.repeat < repeats], self.recorder)

    def _race_heads(self) -> Stage:
        steps = self.plan.head_steps
        race = self._build_race("linear head", self.measurer.measure_head, self.plan.head_repeats)
        finalists: list[Any] = []
        for half in (0, 1):
            field = list_head_candidates(self.linear.choose_start(half), self.plan.race, self.measurer.width)
            folds = race.list_folds(half)
            finalists.append(race.run(half, field, [(folds[:1], steps // 4), (folds, steps // 2)]))
        self._heads = finalists
        return *race.measure_finalists(finalists, steps, steps // MEASUREMENTS), race.splits

    def _add_residual(self) -> Stage:
        """Train residual heads with the settings that won the race of linear heads."""
        steps = self.plan.head_steps
        race = self._build_race("residual head", self.measurer.measure_head, self.plan.head_repeats)
        finalists = [
            race.run(half, list_residual_candidates([finalist]), [(race.list_folds(half), steps // 2)])
            for half, finalist in enumerate(self._heads)
        ]
        return *race.measure_finalists(finalists, steps, steps // MEASUREMENTS), race.splits

    def _tune(self) -> Stage:
        """Train the last stages of the backbone with the loss that won the race of heads, on one repeat."""
        assert self.tuner is not None
        steps = self.plan.tune_steps
        every = steps // TUNE_MEASUREMENTS
        race = self._build_race("fine-tuning", self.tuner.measure, 1)
        finalists = []
        for half in (0, 1):
            loss = self._heads[half].loss if self._heads else "margin"
            field = self.tuner.list_candidates(self.linear.choose_start(half), loss)
            finalists.append(race.run(half, field, [(race.list_folds(half)[:1], every)]))
        return *race.measure_finalists(finalists, steps, every), race.splits
