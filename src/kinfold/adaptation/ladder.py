"""The ladder: input, linear maps, trained heads; each step is taken only if it is significantly better."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from statistics import fmean

from kinfold.adaptation.candidates import AS_GIVEN, IMAGE_STEPS, STEPS, LinearCandidate
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.decisions import (
    LEVEL,
    CorrectedTest,
    compute_level,
    corrected_test,
    cross_fit,
    select_candidate,
)
from kinfold.adaptation.folder import AdaptationFolder
from kinfold.adaptation.image_network import Tuner
from kinfold.adaptation.linear_stage import LinearStage
from kinfold.adaptation.measuring import Measurer
from kinfold.adaptation.plan import AdaptationPlan
from kinfold.adaptation.race import Winner
from kinfold.adaptation.recording import Measured, Recorder, Report
from kinfold.adaptation.trained_stages import TrainedStages

Values = Mapping[str, float]  # metric -> value
SplitMetrics = Mapping[int, Values]


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
        lower: Metrics that are significantly lower than those of the input, so that the step was not taken.
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
    lower: Sequence[str] = ()


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
        self._input = self.linear.measured[AS_GIVEN]
        incumbent: SplitMetrics = self._input
        self.rows.append(self._describe(AS_GIVEN, AS_GIVEN, incumbent, self.splits))
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
        incumbent: SplitMetrics,
        steps: int,
    ) -> tuple[bool, SplitMetrics]:
        """Add the row of a step; return whether it was taken, and the metrics that the next step must beat."""
        scores = [self.recorder.score_all(proposal) for proposal in proposals]
        selected = cross_fit(scores, splits)
        honest = {split.number: proposals[1 - split.half][selected[1 - split.half]][split.number] for split in splits}
        test = self._compare(honest, incumbent, self.recorder.score)
        level = compute_level(steps, any(row.taken for row in self.rows))
        best = select_candidate({**scores[0], **scores[1]}, [split.number for split in splits])
        lower = tuple(
            metric
            for metric in self.recorder.metrics
            if self._compare(self._input, honest, itemgetter(metric)).p < LEVEL
        )
        taken = test.p < level and not lower
        row = self._describe(step, best, honest, splits)
        row = replace(row, gain=test.difference, gain_half_width=test.half_width, p=test.p, level=level)
        self.rows.append(replace(row, taken=taken, lower=lower))
        return taken, honest if taken else incumbent

    @staticmethod
    def _compare(first: SplitMetrics, second: SplitMetrics, score: Callable[[Values], float]) -> CorrectedTest:
        """Test whether the first is better than the second, on the splits that both have."""
        numbers = [number for number in first if number in second]
        return corrected_test([score(first[number]) - score(second[number]) for number in numbers])

    def _describe(self, step: str, candidate: str, measured: SplitMetrics, splits: Sequence[ClassSplit]) -> LadderRow:
        values = [measured[split.number] for split in splits]
        test = corrected_test([self.recorder.score(each) for each in values])
        metrics = {metric: fmean(each[metric] for each in values) for metric in self.recorder.metrics}
        return LadderRow(step, candidate, test.difference, test.half_width, metrics, seconds=self.recorder.seconds)
