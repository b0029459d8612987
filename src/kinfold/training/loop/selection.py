"""Which weights a run ends with, and when it stops early."""

from copy import copy
from dataclasses import dataclass, field
from typing import Any

# metrics of which smaller values are better
SMALLER_IS_BETTER = ("eer", "uniformity", "alignment", "intra", "rho", "opis")


@dataclass
class Selection:
    """Follows one metric over the evaluations of a run.

    Args:
        rule: "validation" takes the best step on the validation classes, "last" the last step. "test-oracle" takes for
            every metric its best value on the test classes. Many published tables were made so; it inflates the scores
            and is marked wherever they are shown.
        metric: The metric that decides.
        patience: Evaluations without a better value after which training stops.
        min_steps: Steps before which patience never stops training.

    Attributes:
        best, best_step, best_values: The best value, its step, and all metrics at that step.
        stale: Evaluations since the best one.
        last_step: Step of the newest evaluation.
        start_values: All metrics before the first step.
        oracle: metric -> [best value, its step] of the rule "test-oracle".
    """

    rule: str
    metric: str
    patience: int | None = None
    min_steps: int = 0
    best: float | None = None
    best_step: int = 0
    best_values: dict[str, float] = field(default_factory=dict)
    stale: int = 0
    last_step: int = 0
    start_values: dict[str, float] | None = None
    oracle: dict[str, list[float]] = field(default_factory=dict)

    @property
    def inflated(self) -> bool:
        """Whether the scores are inflated by selection on the test classes."""
        return self.rule == "test-oracle"

    def update(self, step: int, values: dict[str, float]) -> bool:
        """Record an evaluation and return whether it is the best so far; the first of equal values stays the best."""
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
        """Whether `patience` evaluations passed without a better value, after `min_steps`."""
        return self.patience is not None and self.stale >= self.patience and self.last_step >= self.min_steps

    def get_selected_step(self, steps: int) -> int:
        """Return the step that a run of `steps` steps ends with; for "test-oracle" that of the selection metric."""
        if self.inflated and self.metric in self.oracle:
            return int(self.oracle[self.metric][1])
        return self.best_step if self.rule == "validation" and self.best is not None else steps

    def state_dict(self) -> dict[str, Any]:
        """Return what changes during training."""
        names = ("best", "best_step", "best_values", "stale", "last_step", "start_values", "oracle")
        return {name: copy(getattr(self, name)) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, value in state.items():
            setattr(self, name, copy(value))


def is_better(metric: str, value: float, than: float) -> bool:
    """Return whether one value of a metric is better than another.

    Examples:
        >>> is_better("recall@1", 0.5, 0.4), is_better("eer", 0.5, 0.4)
        (True, False)
    """
    return value < than if metric.startswith(SMALLER_IS_BETTER) else value > than
