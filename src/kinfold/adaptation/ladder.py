"""The ladder: input, linear maps, trained heads; each step is taken only if it is significantly better."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from kinfold.adaptation.candidates import AS_GIVEN, IMAGE_STEPS, STEPS, LinearCandidate
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.decisions import compute_level, corrected_test, cross_fit, select_candidate
from kinfold.adaptation.folder import AdaptationFolder
from kinfold.adaptation.image_network import Tuner
from kinfold.adaptation.linear_stage import LinearStage
from kinfold.adaptation.measuring import Measurer
from kinfold.adaptation.plan import AdaptationPlan
from kinfold.adaptation.race import Winner
from kinfold.adaptation.recording import Measured, Recorder, Report
from kinfold.adaptation.trained_stages import TrainedStages


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


class Ladder:
    """Climbs the ladder. Every measurement is stored, so that a killed process continues with the next one.

    Args:
        measurer: Measures candidates.
        plan: How many splits, candidates and steps.
        folder: Where measurements are stored.
        report: Called with a line of text and the share of the work that is finished.
        tuner: Trains an image network; None for features.
    """

    def __init__(
        self,
        measurer: Measurer,
        plan: AdaptationPlan,
        folder: AdaptationFolder,
        report: Report,
        tuner: Tuner | None = None,
    ) -> None:
        self.plan = plan
        self.splits = [split for split in measurer.splits if split.repeat < plan.repeats]
        self.recorder = Recorder(folder, measurer.metrics, report, plan.seconds)
        self.linear = LinearStage(measurer, self.splits, self.recorder)
        self.trained = TrainedStages(measurer, plan, self.linear, self.recorder, tuner)
        self.steps = STEPS if tuner is None else IMAGE_STEPS
        self.rows: list[LadderRow] = []

    def climb(self) -> Winner:
        """Take every step that helps; `rows` tells what was tried."""
        steps = [name for name in self.steps if name not in self.trained.list_skipped()]
        self.linear.measure()
        measured = self.linear.measured
        incumbent = self.recorder.score_all({AS_GIVEN: measured[AS_GIVEN]})[AS_GIVEN]
        self.rows.append(self._describe(AS_GIVEN, AS_GIVEN, incumbent, [measured] * 2, self.splits))
        winner = Winner(LinearCandidate(None))
        for step in self.steps:
            self.recorder.seconds = 0.0
            if step not in steps:
                self.rows.append(LadderRow(step, note="skipped: no time"))
                continue
            splits: Sequence[ClassSplit] = self.splits
            if self.steps[step]:
                proposals, options, splits = self.trained.run(step)
            else:
                proposals = self.linear.propose(step)
                options = {name: Winner(candidate) for name, candidate in self.linear.candidates.items()}
            taken, incumbent = self._decide(step, proposals, splits, incumbent, len(steps))
            if taken:
                winner = options[self.rows[-1].candidate]
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
        scores = [self.recorder.score_all(proposal) for proposal in proposals]
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
                row.seconds,
            )
        )
        return taken, honest if taken else incumbent

    def _describe(
        self,
        step: str,
        candidate: str,
        honest: dict[int, float],
        proposals: Sequence[Measured],
        splits: Sequence[ClassSplit],
    ) -> LadderRow:
        test = corrected_test([honest[split.number] for split in splits])
        metrics = {}
        for metric in self.recorder.metrics:
            if step == AS_GIVEN:
                metrics[metric] = fmean(proposals[0][AS_GIVEN][split.number][metric] for split in splits)
                continue
            halves = [[split.number for split in splits if split.half == half] for half in (0, 1)]
            selected = [select_candidate(self.recorder.score_all(proposals[half]), halves[half]) for half in (0, 1)]
            metrics[metric] = fmean(
                proposals[1 - split.half][selected[1 - split.half]][split.number][metric] for split in splits
            )
        return LadderRow(step, candidate, test.difference, test.half_width, metrics, seconds=self.recorder.seconds)
