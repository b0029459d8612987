"""How training went: losses and scores by step, with the smallest and the largest over the runs of a method."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from kinfold.experiments.tables import AS_THEY_ARE
from kinfold.report.content.inputs import ReportInputs, Subject
from kinfold.report.content.json_values import numbers

POINTS = 300  # of one line
FAR_APART = 5.0  # times that one loss is larger than another, from which on a linear axis would flatten the smaller one
Line = dict[int, float | None]  # step -> value; None where it was not finite


def training_curves(found: ReportInputs, missing: list[str]) -> list[dict[str, Any]]:
    """A chart for the loss and for each metric that was followed, by data set; what went wrong joins `missing`."""
    charts: dict[str, list[dict[str, Any]]] = {}
    for subject in found.subjects:
        lines = [_lines(run.events) for run in subject.runs]
        broken = [run for run, own in zip(subject.runs, lines, strict=True) if None in own.get("loss", {}).values()]
        for run in broken[:1]:
            step = next(step for step, value in _lines(run.events)["loss"].items() if value is None)
            others = f", and in {len(broken) - 1} more runs of it" if len(broken) > 1 else ""
            missing.append(f"{subject.method} on {subject.data}: the loss was not finite at step {step}{others}")
        for title in dict.fromkeys(title for own in lines for title in own):
            series = _series(subject, [own[title] for own in lines if title in own])
            if series is not None:
                prefix = f"{subject.data}: " if len(found.data) > 1 else ""
                charts.setdefault(prefix + title, []).append(series)
        lengths = {max(own["loss"]) for own in lines if own.get("loss")}
        if len(lengths) > 1:
            missing.append(
                f"{subject.method} on {subject.data}: its runs stopped at different steps, from {min(lengths)} to "
                f"{max(lengths)}; the curve is the mean of those that were still going"
            )
    order = sorted(charts, key=lambda title: not title.endswith("loss"))  # losses first, all else as it was met
    return [
        {
            "title": title,
            "x": "step",
            "series": charts[title],
            "log_y": title.endswith("loss") and _far_apart(charts[title]),
            "share": not title.endswith("loss") and not title.split()[-1].startswith(AS_THEY_ARE),
        }
        for title in order
    ]


def _far_apart(series: Sequence[dict[str, Any]]) -> bool:
    """Whether losses of several methods differ so much in size that they need a logarithmic axis, and can have one."""
    known = [[value for value in one["mean"] if value is not None] for one in series]
    if any(value < 0 for values in known for value in values):
        return False
    typical = [median(values) for values in known if values]
    positive = [value for value in typical if value > 0]
    return len(positive) > 1 and max(positive) > FAR_APART * min(positive)


def _lines(events: Sequence[dict[str, Any]]) -> dict[str, Line]:
    """title -> step -> value of one run."""
    found: dict[str, Line] = {}
    for event in events:
        step = event["step"]
        if event["event"] == "step":
            found.setdefault("loss", {})[step] = event.get("loss")
        elif event["event"] == "evaluation":
            for name, value in event.items():
                if name in ("event", "step", "split", "seconds"):
                    continue
                # "train rho@1" is of the training classes, whatever the others are of
                title = name if name.startswith("train ") else f"{event.get('split', 'validation')} {name}"
                found.setdefault(title, {})[step] = value
    return found


def _series(subject: Subject, lines: Sequence[Line]) -> dict[str, Any] | None:
    steps = sorted({step for line in lines for step in line})
    if not steps:
        return None
    if len(steps) > POINTS:
        steps = [steps[round(place * (len(steps) - 1) / (POINTS - 1))] for place in range(POINTS)]
    values = [[line[step] for line in lines if step in line] for step in steps]
    means, low, high = [], [], []
    for each in values:
        known = [value for value in each if value is not None and math.isfinite(value)]
        whole = len(known) == len(each)  # a mean without those that broke down would be too good
        means.append(sum(known) / len(known) if whole else None)
        low.append(min(known) if whole and len(known) > 1 else None)
        high.append(max(known) if whole and len(known) > 1 else None)
    return {
        "name": subject.method,
        "x": steps,
        "mean": numbers(means),
        "low": numbers(low),
        "high": numbers(high),
        "count": len(lines),
    }
