"""The ladder: input, linear maps, trained heads; each step is taken only if it is significantly better."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from kinfold.adaptation.candidates import (
    AS_GIVEN,
    STEPS,
    HeadCandidate,
    LinearCandidate,
    list_head_candidates,
    list_linear_candidates,
    list_residual_candidates,
)
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.decisions import Scores, compute_level, corrected_test, cross_fit, select_candidate
from kinfold.adaptation.folder import AdaptationFolder
from kinfold.adaptation.measuring import Measurer
from kinfold.adaptation.plan import KEPT, MEASUREMENTS, AdaptationPlan

LINEAR_STEPS = [name for name, is_trained in STEPS.items() if not is_trained]
Candidate = LinearCandidate | HeadCandidate


@dataclass(frozen=True)
class LadderRow:
    """A step of the ladder.

    Attributes:
        step: Name of the step.
        candidate: The best candidate of the step on all splits; empty where the step was skipped.
        score: Mean over the splits of the cross-fitted score, which is the mean of the metrics.
        half_width: Half width of its 95 % interval over classes.
        metrics: Cross-fitted mean of every metric.
        gain: Score minus that of the last step that was taken, on the same splits.
        gain_half_width: Half width of its 95 % interval.
        p: One-sided p value of "there is no gain".
        level: The p value below which the step is taken.
        taken: Whether the step was taken.
        seconds: Time of its measurements.
        note: Why it was skipped.
    """

    step: str
    candidate: str = ""
    score: float = math.nan
    half_width: float = math.nan
    metrics: dict[str, float] = field(default_factory=dict)
    gain: float = math.nan
    gain_half_width: float = math.nan
    p: float = math.nan
    level: float = math.nan
    taken: bool = False
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Winner:
    """What the ladder ends with: a candidate, and for a trained one its number of steps."""

    candidate: Candidate
    steps: int = 0


Measured = dict[str, dict[int, dict[str, float]]]  # candidate -> split -> metrics


class Ladder:
    """Climbs the ladder. Every measurement is stored, so that a killed process continues with the next one.

    Args:
        measurer: Measures candidates.
        plan: How many splits, candidates and steps.
        folder: Where measurements are stored.
        report: Called with a line of text and the share of the work that is finished.
    """

    def __init__(
        self, measurer: Measurer, plan: AdaptationPlan, folder: AdaptationFolder, report: Callable[[str, float], None]
    ) -> None:
        self.measurer, self.plan, self.folder = measurer, plan, folder
        self.splits = [split for split in measurer.splits if split.repeat < plan.repeats]
        self.rows: list[LadderRow] = []
        self._linear: Measured = {}
        self._linear_candidates: dict[str, LinearCandidate] = {}
        self._report = report
        self._seconds = 0.0
        self._finished = 0

    def climb(self) -> Winner:
        """Take every step that helps; `rows` tells what was tried."""
        trained = {"linear head": self.plan.head_steps > 0, "residual head": self.plan.residual}
        steps = [name for name in STEPS if trained.get(name, True)]
        self._measure_linear()
        input_scores = {split.number: self._score(self._linear[AS_GIVEN][split.number]) for split in self.splits}
        self.rows.append(self._describe(AS_GIVEN, AS_GIVEN, input_scores, [self._linear] * 2))
        winner, incumbent = Winner(LinearCandidate(None)), input_scores
        finalists: Sequence[HeadCandidate] = ()
        for step in STEPS:
            self._seconds = 0.0
            if step not in steps:
                self.rows.append(LadderRow(step, note="skipped: there is not enough time for it; give more minutes"))
                continue
            if not STEPS[step]:
                names = {candidate.name for candidate in self._list_linear(step)}
                chosen = {name: values for name, values in self._linear.items() if name in names}
                proposals, splits = [chosen, chosen], self.splits
                options = {name: Winner(self._linear_candidates[name]) for name in chosen}
            else:
                splits = [split for split in self.splits if split.repeat < self.plan.head_repeats]
                finalists = self._race(step, finalists)
                proposals, options = self._measure_finalists(step, finalists, splits)
            taken, incumbent = self._decide(step, proposals, splits, incumbent, len(steps))
            if taken:
                everything = {**proposals[0], **proposals[1]}
                best = select_candidate(self._score_all(everything), [split.number for split in splits])
                winner = options[best]
        return winner

    def _decide(
        self,
        step: str,
        proposals: Sequence[Measured],
        splits: Sequence[ClassSplit],
        incumbent: dict[int, float],
        steps: int,
    ) -> tuple[bool, dict[int, float]]:
        """Add the row of a step; return whether it was taken, and the scores that the next step must beat."""
        scores = [self._score_all(proposal) for proposal in proposals]
        honest = cross_fit(scores, splits)
        test = corrected_test([honest[split.number] - incumbent[split.number] for split in splits])
        level = compute_level(steps, any(row.taken for row in self.rows))
        everything = {**scores[0], **scores[1]}
        best = select_candidate(everything, [split.number for split in splits])
        taken = test.p < level
        row = self._describe(step, best, honest, proposals, splits)
        self.rows.append(
            LadderRow(
                step,
                best,
                row.score,
                row.half_width,
                row.metrics,
                test.difference,
                test.half_width,
                test.p,
                level,
                taken,
                self._seconds if STEPS[step] else row.seconds,
            )
        )
        return taken, honest if taken else incumbent

    def _describe(
        self,
        step: str,
        candidate: str,
        honest: dict[int, float],
        proposals: Sequence[Measured],
        splits: Sequence[ClassSplit] | None = None,
    ) -> LadderRow:
        splits = self.splits if splits is None else splits
        test = corrected_test([honest[split.number] for split in splits])
        metrics = {}
        for metric in self.measurer.metrics:
            if step == AS_GIVEN:
                metrics[metric] = fmean(proposals[0][AS_GIVEN][split.number][metric] for split in splits)
                continue
            halves = [[split.number for split in splits if split.half == half] for half in (0, 1)]
            selected = [select_candidate(self._score_all(proposals[half]), halves[half]) for half in (0, 1)]
            metrics[metric] = fmean(
                proposals[1 - split.half][selected[1 - split.half]][split.number][metric] for split in splits
            )
        return LadderRow(step, candidate, test.difference, test.half_width, metrics, seconds=self._seconds)

    def _list_linear(self, step: str) -> list[LinearCandidate]:
        held_out = max(len(split.held_out) for split in self.splits)
        return list_linear_candidates(step, self.measurer.width, self.measurer.classes - held_out)

    def _measure_linear(self) -> None:
        """Measure all linear maps on all splits; each split is one measurement."""
        candidates = [LinearCandidate(None), *(each for step in LINEAR_STEPS for each in self._list_linear(step))]
        self._linear_candidates = {candidate.name: candidate for candidate in candidates}
        for split in self.splits:
            values = self.measure_split(split, candidates)
            for name, metrics in values.items():
                self._linear.setdefault(name, {})[split.number] = metrics
            self._finished += 1
            self._report("linear maps", (split.number + 1) / len(self.splits))

    def measure_split(self, split: ClassSplit, candidates: Sequence[LinearCandidate]) -> dict[str, dict[str, float]]:
        """Measure linear maps on one split, or read what was measured."""
        values: dict[str, dict[str, float]] = self._remember(
            f"linear-{split.number}", lambda: self.measurer.measure_linear(split, candidates)
        )
        return values

    def _race(self, step: str, finalists: Sequence[HeadCandidate]) -> list[HeadCandidate]:
        """Return the finalist of each half of the classes: successive halving on the folds of that half alone."""
        winners = []
        total = 2 * self.plan.race if step == "linear head" else 8
        for half in (0, 1):
            folds = [split for split in self.splits if split.half == half and split.repeat == 0]
            if step == "linear head":
                numbers = [split.number for split in self.splits if split.half == half]
                maps = {name: values for name, values in self._linear.items() if name != AS_GIVEN}
                start = self._linear_candidates[select_candidate(self._score_all(maps), numbers)]
                field = list_head_candidates(start, self.plan.race)
                rounds = [(folds[:1], self.plan.head_steps // 4), (folds, self.plan.head_steps // 2)]
            else:
                field = list_residual_candidates([finalists[half]])
                rounds = [(folds, self.plan.head_steps // 2)]
            for number, (splits, steps) in enumerate(rounds):
                scores = {}
                for position, candidate in enumerate(field):
                    measured = [self._measure_head(step, split, candidate, steps, steps)[-1] for split in splits]
                    scores[candidate] = fmean(map(self._score, measured))
                    share = (half * len(field) + position + 1) / max(1, total if number == 0 else 2 * len(field))
                    self._report(f"{step}, race", min(1.0, share))
                kept = 1 if number == len(rounds) - 1 else -(-len(field) // KEPT)
                field = sorted(field, key=lambda candidate: -scores[candidate])[:kept]
            winners.append(field[0])
        return winners

    def _measure_finalists(
        self, step: str, finalists: Sequence[HeadCandidate], splits: Sequence[ClassSplit]
    ) -> tuple[list[Measured], dict[str, Winner]]:
        """Train the finalist of each half on all splits; every measurement during training is a candidate."""
        steps, every = self.plan.head_steps, self.plan.head_steps // MEASUREMENTS
        proposals: list[Measured] = [{}, {}]
        options: dict[str, Winner] = {}
        for half, candidate in enumerate(finalists):
            for position, split in enumerate(splits):
                measured = self._measure_head(step, split, candidate, steps, every)
                for number, metrics in enumerate(measured[1:], start=1):
                    name = f"{candidate.name}, {number * every} steps from {candidate.start.name}"
                    proposals[half].setdefault(name, {})[split.number] = metrics
                    options[name] = Winner(candidate, number * every)
                self._report(f"{step}, finalists", (half * len(splits) + position + 1) / (2 * len(splits)))
        return proposals, options

    def _measure_head(
        self, step: str, split: ClassSplit, candidate: HeadCandidate, steps: int, every: int
    ) -> list[dict[str, float]]:
        key = f"{step}-{split.number}-{candidate.name}-{candidate.start.name}-{steps}"
        values: list[dict[str, float]] = self._remember(
            key, lambda: self.measurer.measure_head(split, candidate, steps, every)
        )
        return values

    def _remember(self, key: str, compute: Callable[[], Any]) -> Any:
        value, seconds = self.folder.remember(key, compute, time.perf_counter)
        self._seconds += seconds
        return value

    def _score(self, metrics: dict[str, float]) -> float:
        return fmean(metrics[name] for name in self.measurer.metrics)

    def _score_all(self, measured: Measured) -> Scores:
        return {
            name: {split: self._score(metrics) for split, metrics in values.items()}
            for name, values in measured.items()
        }
