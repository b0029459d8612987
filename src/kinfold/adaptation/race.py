"""The trained steps of the ladder: a race of heads with successive halving, then its finalists on all splits."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from kinfold.adaptation.candidates import HeadCandidate, LinearCandidate, list_head_candidates, list_residual_candidates
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.measuring import Measurer
from kinfold.adaptation.plan import KEPT, MEASUREMENTS, AdaptationPlan
from kinfold.adaptation.recording import Measured, Recorder

Candidate = LinearCandidate | HeadCandidate


@dataclass(frozen=True)
class Winner:
    """What the ladder ends with: a candidate, and for a trained one its number of steps."""

    candidate: Candidate
    steps: int = 0


class Race:
    """Trains heads on splits.

    Args:
        measurer: Measures candidates.
        plan: How many candidates, splits and steps.
        splits: The splits of all repeats.
        recorder: Stores measurements.
    """

    def __init__(
        self, measurer: Measurer, plan: AdaptationPlan, splits: Sequence[ClassSplit], recorder: Recorder
    ) -> None:
        self.measurer, self.plan, self.recorder = measurer, plan, recorder
        self.splits = [split for split in splits if split.repeat < plan.head_repeats]
        self._finalists: list[HeadCandidate] = []  # of the step before, one of each half

    def run_linear(self, starts: Sequence[LinearCandidate]) -> tuple[list[Measured], dict[str, Winner]]:
        """Race linear heads from the start of each half.

        Returns:
            For each half the measurements of its finalist, and what each name in them stands for.
        """
        steps, finalists = self.plan.head_steps, []
        for half, start in enumerate(starts):
            field = list_head_candidates(start, self.plan.race, self.measurer.width)
            folds = self._list_folds(half)
            finalists.append(self._halve("linear head", half, field, [(folds[:1], steps // 4), (folds, steps // 2)]))
        self._finalists = finalists
        return self._measure_finalists("linear head")

    def run_residual(self) -> tuple[list[Measured], dict[str, Winner]]:
        """Train residual heads with the settings that won the race of linear heads."""
        rounds = [(self._list_folds(half), self.plan.head_steps // 2) for half in (0, 1)]
        self._finalists = [
            self._halve("residual head", half, list_residual_candidates([finalist]), [rounds[half]])
            for half, finalist in enumerate(self._finalists)
        ]
        return self._measure_finalists("residual head")

    def _list_folds(self, half: int) -> list[ClassSplit]:
        return [split for split in self.splits if split.half == half and split.repeat == 0]

    def _halve(
        self,
        step: str,
        half: int,
        field: Sequence[HeadCandidate],
        rounds: Sequence[tuple[Sequence[ClassSplit], int]],
    ) -> HeadCandidate:
        """Return the finalist of a half of the classes: successive halving on the folds of that half alone."""
        for number, (splits, steps) in enumerate(rounds):
            scores = {}
            for position, candidate in enumerate(field):
                measured = [self._measure(step, split, candidate, steps, steps)[-1] for split in splits]
                scores[candidate] = fmean(map(self.recorder.score, measured))
                share = (number + (position + 1) / len(field)) / len(rounds)
                self.recorder.report(f"{step}, race", (half + share) / 2)
            kept = 1 if number == len(rounds) - 1 else -(-len(field) // KEPT)
            field = sorted(field, key=lambda candidate: -scores[candidate])[:kept]
        return field[0]

    def _measure_finalists(self, step: str) -> tuple[list[Measured], dict[str, Winner]]:
        """Train the finalist of each half on all splits; every measurement during training is a candidate."""
        steps, every = self.plan.head_steps, self.plan.head_steps // MEASUREMENTS
        proposals: list[Measured] = [{}, {}]
        options: dict[str, Winner] = {}
        for half, candidate in enumerate(self._finalists):
            for position, split in enumerate(self.splits):
                measured = self._measure(step, split, candidate, steps, every)
                for number, metrics in enumerate(measured[1:], start=1):
                    name = f"{candidate.name}, {number * every} steps from {candidate.start.name}"
                    proposals[half].setdefault(name, {})[split.number] = metrics
                    options[name] = Winner(candidate, number * every)
                share = (half * len(self.splits) + position + 1) / (2 * len(self.splits))
                self.recorder.report(f"{step}, finalists", share)
        return proposals, options

    def _measure(
        self, step: str, split: ClassSplit, candidate: HeadCandidate, steps: int, every: int
    ) -> list[dict[str, float]]:
        key = f"{step}-{split.number}-{candidate.name}-{candidate.start.name}-{steps}-{every}"
        values: list[dict[str, float]] = self.recorder.remember(
            key, lambda: self.measurer.measure_head(split, candidate, steps, every)
        )
        return values
