"""The trained steps of the ladder: a race with successive halving, then its finalists on all splits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from kinfold.adaptation.candidates import START_SHARES, HeadCandidate, LinearCandidate, TunedCandidate
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.plan import KEPT
from kinfold.adaptation.recording import Measured, Recorder

TrainedCandidate = HeadCandidate | TunedCandidate
Measurements = list[list[dict[str, float]]]  # over time, with each share of the first weights
Measure = Callable[[ClassSplit, TrainedCandidate, int, int], Measurements]
Round = tuple[Sequence[ClassSplit], int]  # splits, and steps of each training


@dataclass(frozen=True)
class Winner:
    """What the ladder ends with: a candidate, and for a trained one its steps and the share of its first weights."""

    candidate: LinearCandidate | TrainedCandidate
    steps: int = 0
    start_share: float = 0.0


class Race:
    """Trains candidates on splits. What a half of the classes proposes depends on its folds alone.

    Args:
        step: Name of the step of the ladder.
        measure: Trains a candidate on a split for some steps, and returns its metrics at the start and after every so
            many steps, for each share of the first weights.
        splits: The splits that finalists are measured on.
        recorder: Stores measurements.
    """

    def __init__(self, step: str, measure: Measure, splits: Sequence[ClassSplit], recorder: Recorder) -> None:
        self.step, self.splits, self.recorder = step, splits, recorder
        self._measure_candidate = measure

    def list_folds(self, half: int) -> list[ClassSplit]:
        """Return the folds of the first repeat that hold out classes of a half."""
        return [split for split in self.splits if split.half == half and split.repeat == 0]

    def run(self, half: int, field: Sequence[TrainedCandidate], rounds: Sequence[Round]) -> TrainedCandidate:
        """Return the finalist of a half of the classes, by successive halving.

        Args:
            half: 0 or 1.
            field: The candidates.
            rounds: Splits, which hold out classes of this half, and steps of each round.
        """
        for number, (splits, steps) in enumerate(rounds):
            scores = {}
            for position, candidate in enumerate(field):
                measured = [self._measure(split, candidate, steps, steps)[-1] for split in splits]
                scores[candidate] = max(
                    fmean(map(self.recorder.score, shares)) for shares in zip(*measured, strict=True)
                )
                share = (number + (position + 1) / len(field)) / len(rounds)
                self.recorder.report(f"{self.step}, race", (half + share) / 2)
            kept = 1 if number == len(rounds) - 1 else -(-len(field) // KEPT)
            field = sorted(field, key=lambda candidate: -scores[candidate])[:kept]
        return field[0]

    def measure_finalists(
        self, finalists: Sequence[TrainedCandidate], steps: int, every: int
    ) -> tuple[list[Measured], dict[str, Winner]]:
        """Train the finalist of each half on all splits; every measurement during training is a candidate.

        Returns:
            For each half the measurements of its finalist, and what each name in them stands for.
        """
        proposals: list[Measured] = [{}, {}]
        options: dict[str, Winner] = {}
        for half, candidate in enumerate(finalists):
            for position, split in enumerate(self.splits):
                measured = self._measure(split, candidate, steps, every)
                for number, entry in enumerate(measured[1:], start=1):
                    for share, metrics in zip(START_SHARES, entry, strict=False):
                        name = f"{candidate.name}, {number * every} steps from {candidate.start.name}"
                        name += f" (of which {share:.0%} stays)" if share else ""
                        proposals[half].setdefault(name, {})[split.number] = metrics
                        options[name] = Winner(candidate, number * every, share)
                share = (half * len(self.splits) + position + 1) / (2 * len(self.splits))
                self.recorder.report(f"{self.step}, finalists", share)
        return proposals, options

    def _measure(self, split: ClassSplit, candidate: TrainedCandidate, steps: int, every: int) -> Measurements:
        key = f"{self.step}-{split.number}-{candidate.name}-{candidate.start.name}-{steps}-{every}"
        values: Measurements = self.recorder.remember(
            key, lambda: self._measure_candidate(split, candidate, steps, every)
        )
        return values
