"""The closed-form steps of the ladder: all maps on the first repeat of the splits, the best of them on all repeats."""

from collections.abc import Sequence

from kinfold.adaptation.candidates import AS_GIVEN, STEPS, LinearCandidate, list_linear_candidates
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.decisions import select_candidate
from kinfold.adaptation.measuring import Measurer
from kinfold.adaptation.recording import Measured, Recorder

LINEAR_STEPS = [name for name, is_trained in STEPS.items() if not is_trained]
_KEPT = 3  # maps of a step that each half of the classes keeps after the first repeat


class LinearStage:
    """Measures linear maps on splits.

    The first repeat measures all of them. Each half of the classes then keeps the best of every step by its folds
    alone, and further repeats measure what one of the halves keeps. So what a half proposes depends on its classes
    only.

    Args:
        measurer: Measures candidates.
        splits: The splits of all repeats.
        recorder: Stores measurements.
    """

    def __init__(self, measurer: Measurer, splits: Sequence[ClassSplit], recorder: Recorder) -> None:
        self.measurer, self.splits, self.recorder = measurer, splits, recorder
        kept = measurer.classes - max(len(split.held_out) for split in splits)
        self._steps = {step: list_linear_candidates(step, measurer.width, kept) for step in LINEAR_STEPS}
        self.candidates = {candidate.name: candidate for step in self._steps.values() for candidate in step}
        self.measured: Measured = {}
        self._kept: list[set[str]] = [{*self.candidates}, {*self.candidates}]  # by half

    def measure(self) -> None:
        """Measure, or read what was measured."""
        for position, split in enumerate(self.splits):
            if split.repeat == 1 and self.splits[position - 1].repeat == 0:
                self._kept = [self._keep_best(half) for half in (0, 1)]
            names = [name for name in self.candidates if any(name in kept for kept in self._kept)]
            candidates = [LinearCandidate(None), *(self.candidates[name] for name in names)]
            for name, metrics in measure_maps(self.measurer, self.recorder, split, candidates).items():
                self.measured.setdefault(name, {})[split.number] = metrics
            self.recorder.report("linear maps", (position + 1) / len(self.splits))

    def propose(self, step: str) -> list[Measured]:
        """Return the measurements of the maps of a step that each half keeps."""
        names = [candidate.name for candidate in self._steps[step]]
        return [{name: self.measured[name] for name in names if name in kept} for kept in self._kept]

    def choose_start(self, half: int) -> LinearCandidate:
        """Return the map with the best score on the folds of a half, from which its heads start."""
        maps = {name: self.measured[name] for name in self.candidates if name in self._kept[half]}
        numbers = [split.number for split in self.splits if split.half == half]
        return self.candidates[select_candidate(self.recorder.score_all(maps), numbers)]

    def _keep_best(self, half: int) -> set[str]:
        folds = [split.number for split in self.splits if split.half == half and split.repeat == 0]
        kept: set[str] = set()
        for candidates in self._steps.values():
            scores = self.recorder.score_all({each.name: self.measured[each.name] for each in candidates})
            for _ in range(min(_KEPT, len(scores))):
                best = select_candidate(scores, folds)
                kept.add(best)
                del scores[best]
        return kept

    def list_all(self) -> list[LinearCandidate]:
        """List what the first repeat measures."""
        return [LinearCandidate(None), *self.candidates.values()]


def measure_maps(
    measurer: Measurer, recorder: Recorder, split: ClassSplit, candidates: Sequence[LinearCandidate]
) -> dict[str, dict[str, float]]:
    """Measure linear maps on one split, or read what was measured."""
    values: dict[str, dict[str, float]] = recorder.remember(
        f"linear-{split.number}", lambda: measurer.measure_linear(split, candidates)
    )
    return values


__all__ = ["AS_GIVEN", "LINEAR_STEPS", "LinearStage", "measure_maps"]
