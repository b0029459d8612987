"""Diagnostics of training-class embeddings against the score on test classes, one point for each method."""

import math
from typing import Any

from kinfold import metrics
from kinfold.data import Dataset, Rows
from kinfold.distributed import World
from kinfold.files.cache import load_or_compute
from kinfold.files.checksums import digest_files
from kinfold.report.charts import Axis, Chart, Series
from kinfold.report.content.datasets import RunDatasets
from kinfold.report.content.inputs import ReportInputs, ReportMethod
from kinfold.report.content.json_values import round_number
from kinfold.report.content.result_tables import read_scores
from kinfold.training import Run

TEST_METRIC = "recall@1"
DIAGNOSTICS = ("rho@1", "rho@2", "density", "uniformity", "alignment")
MAX_ITEMS = 30_000  # up to which missing diagnostics are measured here


def describe_diagnostics(inputs: ReportInputs, datasets: RunDatasets, missing: list[str]) -> list[Chart]:
    """Describe a scatter plot for each diagnostic: means over the repeats of each method on the first dataset.

    The diagnostics are those that the runs measured on their training classes. Missing ones are measured here on the
    first run, if its items are feature vectors.
    """
    values: dict[str, dict[str, float]] = {}
    first_run_only = set()
    for method in inputs.methods:
        if method.data != inputs.data[0]:
            continue
        means = _average_repeats(method)
        absent = [name for name in DIAGNOSTICS if name not in means]
        if TEST_METRIC in means and absent:
            measured = _measure_first_run(method, absent, datasets)
            first_run_only |= {*measured} if len(method.runs) > 1 else set()
            means |= measured
        if TEST_METRIC in means and len(means) > 1:
            values[method.name] = means
    names = [*dict.fromkeys(name for means in values.values() for name in means if name != TEST_METRIC)]
    if first_run_only:
        listed = ", ".join(name for name in DIAGNOSTICS if name in first_run_only)
        missing.append(f"{listed} of the training classes: of the first run of each method only")
    absent = [name for name in DIAGNOSTICS if name not in names]
    if absent:
        advice = f"add them to evaluation.diagnostics, and {TEST_METRIC} to evaluation.metrics"
        missing.append(f"{', '.join(absent)} against {TEST_METRIC}: not measured ({advice})")
    return [_describe_chart(name, values, inputs.method_styles) for name in names]


def _describe_chart(name: str, values: dict[str, dict[str, float]], styles: dict[str, int]) -> Chart:
    series = [
        Series(method, [round_number(means[name])], [round_number(means[TEST_METRIC])], styles[method])
        for method, means in values.items()
        if name in means
    ]
    return Chart(
        f"{name} against {TEST_METRIC}",
        f"{TEST_METRIC} against {name}",
        Axis(f"{name} of the training classes"),
        Axis(f"test {TEST_METRIC}", limits=(0.0, 1.0)),
        series,
        "scatter",
        note="two points or fewer show no trend" if len(series) < 3 else f"{len(series)} methods",
    )


def _average_repeats(method: ReportMethod) -> dict[str, float]:
    """Mean over repeats of each diagnostic of the training classes, and of the score on the test classes."""
    values: dict[str, list[float]] = {}
    for repeat in method.repeats:
        scores = read_scores(repeat)
        test = scores.get("test") or scores.get("separated") or {}
        for name, value in {**scores.get("train_space", {}), TEST_METRIC: test.get(TEST_METRIC)}.items():
            if value is not None and math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {name: sum(each) / len(each) for name, each in values.items()}


def _measure_first_run(method: ReportMethod, names: list[str], datasets: RunDatasets) -> dict[str, float]:
    repeat = next((repeat for repeat in method.repeats if repeat.complete), None)
    if repeat is None:
        return {}
    run = repeat.runs[0]
    try:
        train = datasets.load_splits(run)["train"]
        if not isinstance(train.items, Rows) or len(train) > MAX_ITEMS:
            return {}
        key = f"{digest_files(run.weight_files())} {datasets.identify(train)} {run.background} {names}"
        values = load_or_compute(run.folder, "report-train-space", key, lambda: _measure(run, train, names))
    except (ValueError, OSError):
        return {}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _measure(run: Run, train: Dataset, names: list[str]) -> dict[str, Any]:
    rows = run.embed(train)
    possible = [name for name in names if name != "rho@2" or min(rows.shape) > 1]
    return {**metrics.evaluate(rows, train.labels, metrics=possible, distance=run.distance, world=World())}
