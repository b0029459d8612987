"""How training went: losses and scores by step, with the smallest and the largest over the runs of a method."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from kinfold.experiments.tables import NOT_PERCENT
from kinfold.report.charts import Axis, Chart, Series
from kinfold.report.content.inputs import ReportInputs, ReportMethod
from kinfold.report.content.json_values import round_numbers

MAX_POINTS = 300  # of one line
MAX_LOSS_RATIO = 5.0  # between methods; beyond it the smaller loss would look flat on a linear axis
LOG_NOTE = "log scale, because losses of different methods differ in size; zero is not on it"
Line = dict[int, float | None]  # step -> value; None if it was not finite


def describe_training(inputs: ReportInputs, missing: list[str]) -> list[Chart]:
    """Describe a chart of the loss and of each logged metric, for each dataset; problems are added to `missing`."""
    charts: dict[str, list[Series]] = {}
    styles = inputs.method_styles
    for method in inputs.methods:
        lines = [_read_lines(run.events) for run in method.runs]
        missing += _describe_problems(method, [line.get("loss", {}) for line in lines])
        for title in dict.fromkeys(title for line in lines for title in line):
            series = _average(method.name, styles[method.name], [line[title] for line in lines if title in line])
            if series is not None:
                prefix = f"{method.data}: " if len(inputs.data) > 1 else ""
                charts.setdefault(prefix + title, []).append(series)
    losses_first = sorted(charts, key=lambda title: not title.endswith("loss"))
    return [_describe_chart(title, charts[title]) for title in losses_first]


def _describe_chart(title: str, series: Sequence[Series]) -> Chart:
    is_loss = title.endswith("loss")
    is_fraction = not is_loss and not title.split()[-1].startswith(NOT_PERCENT)
    log = is_loss and needs_log_scale(series)
    y = Axis(title, "log" if log else "linear", (0.0, 1.0) if is_fraction else None)
    return Chart(f"training {title}", title, Axis("step", integer=True), y, series, note=LOG_NOTE if log else "")


def needs_log_scale(series: Sequence[Series]) -> bool:
    """Return whether the losses of several methods differ so much in size that they need a log axis, and allow one."""
    finite = [[value for value in one.y if value is not None] for one in series]
    if any(value < 0 for values in finite for value in values):
        return False
    typical = [median(values) for values in finite if values]
    positive = [value for value in typical if value > 0]
    return len(positive) > 1 and max(positive) > MAX_LOSS_RATIO * min(positive)


def _describe_problems(method: ReportMethod, losses: Sequence[Line]) -> list[str]:
    problems = []
    broken = [line for line in losses if None in line.values()]
    if broken:
        step = next(step for step, value in broken[0].items() if value is None)
        more = f", and in {len(broken) - 1} more of its runs" if len(broken) > 1 else ""
        problems.append(f"{method.name} on {method.data}: the loss was not finite at step {step}{more}")
    lengths = {max(line) for line in losses if line}
    if len(lengths) > 1:
        problems.append(
            f"{method.name} on {method.data}: its runs stopped at different steps, from {min(lengths)} to "
            f"{max(lengths)}; the curve is the mean of the runs that reached a step"
        )
    return problems


def _read_lines(events: Sequence[dict[str, Any]]) -> dict[str, Line]:
    """Title -> step -> value of one run."""
    lines: dict[str, Line] = {}
    for event in events:
        step = event["step"]
        if event["event"] == "step":
            lines.setdefault("loss", {})[step] = event.get("loss")
        elif event["event"] == "evaluation":
            for name, value in event.items():
                if name in ("event", "step", "split", "seconds"):
                    continue
                # "train rho@1" is of the training classes, whichever split the event is about
                title = name if name.startswith("train ") else f"{event.get('split', 'validation')} {name}"
                lines.setdefault(title, {})[step] = value
    return lines


def _average(name: str, style: int, lines: Sequence[Line]) -> Series | None:
    steps = sorted({step for line in lines for step in line})
    if not steps:
        return None
    if len(steps) > MAX_POINTS:
        steps = [steps[round(index * (len(steps) - 1) / (MAX_POINTS - 1))] for index in range(MAX_POINTS)]
    means, low, high = [], [], []
    for step in steps:
        values = [line[step] for line in lines if step in line]
        finite = [value for value in values if value is not None and math.isfinite(value)]
        complete = len(finite) == len(values)  # a mean without the runs that diverged would be too good
        means.append(sum(finite) / len(finite) if complete else None)
        low.append(min(finite) if complete and len(finite) > 1 else None)
        high.append(max(finite) if complete and len(finite) > 1 else None)
    return Series(name, steps, round_numbers(means), style, round_numbers(low), round_numbers(high))
