"""The ladder: input, linear maps, trained heads; each step is taken only if it is significantly better."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from statistics import fmean

from kinfold.adaptation.candidates import AS_GIVEN, IMAGE_STEPS, STEPS, LinearCandidate
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.decisions import (
    HELP_LEVEL,
    LEVEL,
    CorrectedTest,
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
BEST_MAP, BEST_TRAINED = "the best linear map", "the best trained space"


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
        level: The p value below which the step is taken; 0 where the tests before found that nothing helps.
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


@dataclass(frozen=True)
class _Stage:
    """What a step measured: for each half its proposals, what their names stand for, the splits, and the time."""

    proposals: Sequence[Measured]
    options: Mapping[str, Winner]
    splits: Sequence[ClassSplit]
    seconds: float


class Ladder:
    """Climbs the ladder. Every measurement is stored, so that a killed process continues with the next one.

    Args:
        measurer: Measures candidates.
        plan: How many splits, candidates and steps.
        folder: Where measurements are stored.
        report: Called with a line of text and the share of the work that is finished.
        tuner: Trains an image network; None for features.
        skipped: Why steps are left out that the plan does not have.
    """

    def __init__(
        self,
        measurer: Measurer,
        plan: AdaptationPlan,
        folder: AdaptationFolder,
        report: Report,
        tuner: Tuner | None = None,
        skipped: str = "no time",
    ) -> None:
        self.plan = plan
        self.skipped = skipped
        self.splits = [split for split in measurer.splits if split.repeat < plan.repeats]
        self.recorder = Recorder(folder, measurer.metrics, report, plan.seconds)
        self.linear = LinearStage(measurer, self.splits, self.recorder)
        self.trained = TrainedStages(measurer, plan, self.linear, self.recorder, tuner)
        self.steps = STEPS if tuner is None else IMAGE_STEPS
        self.rows: list[LadderRow] = []
        self.help_tests: dict[str, CorrectedTest] = {}  # what is compared with the input, before single steps

    def climb(self) -> Winner:
        """Measure everything, and take every step that helps; `rows` tells what was tried."""
        self.linear.measure()
        self._input = self.linear.measured[AS_GIVEN]
        incumbent: SplitMetrics = self._input
        self.rows.append(self._describe(AS_GIVEN, AS_GIVEN, incumbent, self.splits, self.recorder.seconds))
        stages = {step: self._measure(step) for step in self.steps if step not in self.trained.list_skipped()}
        self.help_tests = self._test_help(stages)
        is_helped = any(test.p < HELP_LEVEL for test in self.help_tests.values())
        winner = Winner(LinearCandidate(None))
        for step in self.steps:
            if step not in stages:
                self.rows.append(LadderRow(step, note=f"skipped: {self.skipped}"))
                continue
            taken, incumbent = self._decide(step, stages[step], incumbent, is_helped)
            if taken:
                winner = stages[step].options[self.rows[-1].candidate]
        return winner

    def _measure(self, step: str) -> _Stage:
        self.recorder.seconds = 0.0
        if self.steps[step]:
            proposals, options, splits = self.trained.run(step)
            return _Stage(proposals, options, splits, self.recorder.seconds)
        options = {name: Winner(candidate) for name, candidate in self.linear.candidates.items()}
        return _Stage(self.linear.propose(step), options, self.splits, self.recorder.seconds)

    def _test_help(self, stages: Mapping[str, _Stage]) -> dict[str, CorrectedTest]:
        """Test whether the best linear map, and the best trained space, is better than the input.

        Each half of the classes chooses among everything that it proposes, and the choice is measured on the other
        half. So there are two tests, however many steps and candidates there are.
        """
        tests = {}
        for name, is_trained in ((BEST_MAP, False), (BEST_TRAINED, True)):
            chosen = {step: stage for step, stage in stages.items() if self.steps[step] == is_trained}
            if chosen:
                splits = min((stage.splits for stage in chosen.values()), key=len)
                proposals: list[Measured] = [
                    {
                        f"{step}: {candidate}": measured
                        for step, stage in chosen.items()
                        for candidate, measured in stage.proposals[half].items()
                    }
                    for half in (0, 1)
                ]
                tests[name] = self._compare(self._choose(proposals, splits), self._input, self.recorder.score)
        return tests

    def _choose(self, proposals: Sequence[Measured], splits: Sequence[ClassSplit]) -> SplitMetrics:
        """Return the metrics, on every split, of the candidate that the other half of the classes chooses."""
        selected = cross_fit([self.recorder.score_all(proposal) for proposal in proposals], splits)
        return {split.number: proposals[1 - split.half][selected[1 - split.half]][split.number] for split in splits}

    def _decide(self, step: str, stage: _Stage, incumbent: SplitMetrics, is_helped: bool) -> tuple[bool, SplitMetrics]:
        """Add the row of a step; return whether it was taken, and the metrics that the next step must beat."""
        honest = self._choose(stage.proposals, stage.splits)
        test = self._compare(honest, incumbent, self.recorder.score)
        everything = self.recorder.score_all({**stage.proposals[0], **stage.proposals[1]})
        best = select_candidate(everything, [split.number for split in stage.splits])
        lower = tuple(
            metric
            for metric in self.recorder.metrics
            if self._compare(self._input, honest, itemgetter(metric)).p < LEVEL
        )
        level = LEVEL if is_helped else 0.0
        taken = test.p < level and not lower
        row = self._describe(step, best, honest, stage.splits, stage.seconds)
        row = replace(row, gain=test.difference, gain_half_width=test.half_width, p=test.p, level=level)
        self.rows.append(replace(row, taken=taken, lower=lower))
        return taken, honest if taken else incumbent

    @staticmethod
    def _compare(first: SplitMetrics, second: SplitMetrics, score: Callable[[Values], float]) -> CorrectedTest:
        """Test whether the first is better than the second, on the splits that both have."""
        numbers = [number for number in first if number in second]
        return corrected_test([score(first[number]) - score(second[number]) for number in numbers])

    def _describe(
        self, step: str, candidate: str, measured: SplitMetrics, splits: Sequence[ClassSplit], seconds: float
    ) -> LadderRow:
        values = [measured[split.number] for split in splits]
        test = corrected_test([self.recorder.score(each) for each in values])
        metrics = {metric: fmean(each[metric] for each in values) for metric in self.recorder.metrics}
        return LadderRow(step, candidate, test.difference, test.half_width, metrics, seconds=seconds)
