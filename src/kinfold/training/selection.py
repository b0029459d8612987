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
    """

    rule: str
    metric: str
    patience: int | None = None
    best: float | None = None
    best_step: int = 0
    best_values: dict[str, float] = field(default_factory=dict)  # of every metric, at that step
    stale: int = 0
    oracle: dict[str, list[float]] = field(default_factory=dict)  # metric -> [best value, its step]

    @property
    def inflated(self) -> bool:
        return self.rule == "test-oracle"

    def judge(self, step: int, values: dict[str, float]) -> bool:
        """Take note of an evaluation; whether it is the best so far. The first of equal values stays the best."""
        if self.inflated:
            for name, value in values.items():
                if name not in self.oracle or better(name, value, self.oracle[name][0]):
                    self.oracle[name] = [value, float(step)]
        value = values.get(self.metric, float("nan"))
        if value == value and (self.best is None or better(self.metric, value, self.best)):
            self.best, self.best_step, self.best_values, self.stale = value, step, dict(values), 0
            return True
        self.stale += 1
        return False

    @property
    def exhausted(self) -> bool:
        """Whether `patience` evaluations went by without a better one."""
        return self.patience is not None and self.stale >= self.patience

    def state_dict(self) -> dict[str, Any]:
        names = ("best", "best_step", "best_values", "stale", "oracle")
        return {name: copy(getattr(self, name)) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, copy(value))


def better(metric: str, value: float, than: float) -> bool:
    """Whether a value of this metric beats another.

    >>> better("recall@1", 0.5, 0.4), better("eer", 0.5, 0.4)
    (True, False)
    """
    return value < than if metric.startswith(SMALLER_IS_BETTER) else value > than
