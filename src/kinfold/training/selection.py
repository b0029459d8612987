"""Which weights a run ends with, and when it stops early."""

from copy import copy
from dataclasses import dataclass, field
from typing import Any

# metrics of which less is better
SMALLER_IS_BETTER = ("eer", "uniformity", "alignment", "intra", "rho")


@dataclass
class Selection:
    """Follows one metric over the evaluations.

    rule "validation": the best step on classes that neither train nor test. "last": the last step. "test-oracle": for
    every metric its best value on the test classes over all steps, which is how many published tables were made and is
    too good to be true: it is marked as inflated wherever it is shown.

    patience: evaluations without a better one after which training ends, but not before step `least_steps`.
    """

    rule: str
    metric: str
    patience: int | None = None
    least_steps: int = 0
    best: float | None = None
    best_step: int = 0
    best_values: dict[str, float] = field(default_factory=dict)  # of every metric, at that step
    stale: int = 0
    last_step: int = 0  # of the newest evaluation
    start_values: dict[str, float] | None = None  # of every metric, before the first step
    oracle: dict[str, list[float]] = field(default_factory=dict)  # metric -> [best value, its step]

    @property
    def inflated(self) -> bool:
        return self.rule == "test-oracle"

    def judge(self, step: int, values: dict[str, float]) -> bool:
        """Take note of an evaluation; whether it is the best so far. The first of equal values stays the best."""
        self.last_step = step
        if step == 0:
            self.start_values = dict(values)
        if self.inflated:
            for name, value in values.items():
                if name not in self.oracle or is_better(name, value, self.oracle[name][0]):
                    self.oracle[name] = [value, float(step)]
        value = values.get(self.metric, float("nan"))
        if value == value and (self.best is None or is_better(self.metric, value, self.best)):
            self.best, self.best_step, self.best_values, self.stale = value, step, dict(values), 0
            return True
        self.stale += 1
        return False

    @property
    def exhausted(self) -> bool:
        """Whether `patience` evaluations went by without a better one, and training has had its least steps."""
        return self.patience is not None and self.stale >= self.patience and self.last_step >= self.least_steps

    def selected_step(self, steps: int) -> int:
        """The step that the run ends with after `steps` steps; with "test-oracle" that of the selection metric."""
        if self.inflated and self.metric in self.oracle:
            return int(self.oracle[self.metric][1])
        return self.best_step if self.rule == "validation" and self.best is not None else steps

    def state_dict(self) -> dict[str, Any]:
        names = ("best", "best_step", "best_values", "stale", "last_step", "start_values", "oracle")
        return {name: copy(getattr(self, name)) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, copy(value))


def is_better(metric: str, value: float, than: float) -> bool:
    """Whether a value of this metric beats another.

    >>> better("recall@1", 0.5, 0.4), better("eer", 0.5, 0.4)
    (True, False)
    """
    return value < than if metric.startswith(SMALLER_IS_BETTER) else value > than
