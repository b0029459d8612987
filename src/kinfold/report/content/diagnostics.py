"""What spaces of training classes look like beside what they reach on test classes, method by method."""

import math
from typing import Any

from kinfold import metrics
from kinfold.data import Dataset, Rows
from kinfold.files.cache import load_or_compute
from kinfold.files.checksums import digest_files
from kinfold.report.content.datasets import Library
from kinfold.report.content.inputs import Repetition, ReportInputs, Subject
from kinfold.report.content.json_values import number
from kinfold.report.content.result_tables import scores
from kinfold.training import Run
from kinfold.training.run import weight_files

REACHED = "recall@1"
WANTED = ("rho@1", "rho@2", "density", "uniformity", "alignment")
MOST_ITEMS = 30_000  # up to which missing metrics are measured here


def diagnostics(found: ReportInputs, library: Library, missing: list[str]) -> dict[str, Any]:
    """columns, and a point for each method on the first data set: means over its repeats.

    The spaces are those of training classes, as measured by the runs. What a run did not measure is measured here where
    the items are rows of an array, not files, and then of the first run alone.
    """
    points, later = [], set()
    for subject in found.subjects:
        if subject.data != found.data[0]:
            continue
        values = _means(subject)
        absent = [name for name in WANTED if name not in values]
        if REACHED in values and absent:
            own = _measured(subject, absent, library)
            later |= {name for name in own if len(subject.runs) > 1}
            values |= own
        if REACHED in values and len(values) > 1:
            points.append({"method": subject.method, "values": {name: number(value) for name, value in values.items()}})
    columns = [*dict.fromkeys(name for point in points for name in point["values"] if name != REACHED)]
    if later:
        names = ", ".join(name for name in WANTED if name in later)
        missing.append(f"{names} of the training space: of the first run of each method only")
    unknown = [name for name in WANTED if name not in columns]
    if unknown:
        why = f"add them to evaluation.diagnostics, and {REACHED} to evaluation.metrics"
        missing.append(f"{', '.join(unknown)} against {REACHED}: not measured ({why})")
    return {"columns": [*columns, REACHED] if points else [], "points": points}


def _means(subject: Subject) -> dict[str, float]:
    """The mean over repeats of each metric of the training space, and of the score on the test classes."""
    values: dict[str, list[float]] = {}
    for repetition in subject.repetitions:
        known = scores(repetition)
        tested = known.get("test") or known.get("separated") or {}
        for name, value in {**known.get("train_space", {}), REACHED: tested.get(REACHED)}.items():
            if value is not None and math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {name: sum(each) / len(each) for name, each in values.items()}


def _measured(subject: Subject, names: list[str], library: Library) -> dict[str, float]:
    first: Repetition | None = next((each for each in subject.repetitions if each.complete), None)
    if first is None:
        return {}
    run = first.runs[0]
    try:
        train = library.splits(run)["train"]
        if not isinstance(train.items, Rows) or len(train) > MOST_ITEMS:
            return {}
        key = f"{digest_files(weight_files(run))} {library.identity(train)} {run.background} {names}"
        found = load_or_compute(run.folder, "report-train-space", key, lambda: _space(run, train, names))
    except (ValueError, OSError):
        return {}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _space(run: Run, train: Dataset, names: list[str]) -> dict[str, Any]:
    rows = run.embed(train)
    asked = [name for name in names if name != "rho@2" or min(rows.shape) > 1]
    return {**metrics.evaluate(rows, train.labels, metrics=asked, distance=run.distance, ranks=False)}
