"""Results of a bench as tidy rows: one row for every number, and one for every failed task."""

import csv
import io
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.repeat import read_repeat_scores
from kinfold.experiments.schedule import is_searched, list_trial_runs, open_study
from kinfold.experiments.suite import Suite
from kinfold.files.atomic import write_atomic, write_text
from kinfold.training import Run

COLUMNS = (
    "data",
    "method",
    "protocol",
    "stage",
    "trial",
    "seed",
    "fold",
    "result",
    "metric",
    "value",
    "start",
    "gain",
    "step",
    "steps",
    "selected_start",
    "inflated",
    "error",
    "seconds",
    "folder",
)
TIME_COLUMNS = ("seconds",)  # differ between two runs of the same bench
TRAIN_SPACE = "train"  # the result with the metrics of the training classes' embedding space
ResultRow = dict[str, Any]


def read_result_rows(suite: Suite, bench_folder: BenchFolder, storage: str | None) -> list[ResultRow]:
    """Read every number of a bench from its folder, in the order of the suite.

    Args:
        suite: The suite of the bench.
        bench_folder: The folder of the bench.
        storage: URL of the database with the searches; None where they are in the folder.
    """
    rows: list[ResultRow] = []
    for data in suite.datasets:
        for method in suite.methods:
            if is_searched(suite, data, method) and (storage is not None or bench_folder.journal.is_file()):
                for trial, _ in open_study(suite, bench_folder, data, method, storage).history():
                    for run in list_trial_runs(suite, data, method, trial.number):
                        rows += _read_run(suite, bench_folder, run, "search")
            for seed in suite.seeds:
                runs = [BenchRun(data, method, seed, fold) for fold in range(suite.folds)]
                for run in runs:
                    rows += _read_run(suite, bench_folder, run, "train")
                rows += _read_repeat(suite, bench_folder, runs[0])
    return rows


def write_result_rows(rows: list[ResultRow], bench_folder: BenchFolder) -> None:
    """Write results.csv, and results.parquet where pyarrow is installed."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _format_csv_value(value) for key, value in row.items()} for row in rows)
    write_text(bench_folder.results, text.getvalue(), bench_folder.path)
    if find_spec("pyarrow") is None:
        return
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    table = pyarrow.Table.from_pylist(rows, schema=_build_schema(pyarrow))
    write_atomic(bench_folder.parquet, lambda file: parquet.write_table(table, file), bench_folder.path)


def _read_run(suite: Suite, bench_folder: BenchFolder, run: BenchRun, stage: str) -> Iterator[ResultRow]:
    record = bench_folder.read_record(run.name)
    if record is None:
        return
    row = _create_row(suite, run, stage, record) | {"fold": run.fold, "folder": run.name}
    if record["error"] is not None:
        yield row
        return
    scores = Run.open(bench_folder.resolve_path(run.name)).scores
    row |= {"step": scores["step"], "steps": scores["steps"], "inflated": scores["inflated"]}
    row["selected_start"] = scores.get("selected_start")
    yield from _list_metrics(row, "validation", scores)


def _read_repeat(suite: Suite, bench_folder: BenchFolder, run: BenchRun) -> Iterator[ResultRow]:
    record = bench_folder.read_record(run.repeat_name)
    if record is None:
        return
    row = _create_row(suite, run, "test", record) | {"folder": run.repeat_name}
    if record["error"] is not None:
        yield row
        return
    scores = read_repeat_scores(bench_folder.resolve_path(run.repeat_name))
    row |= {"inflated": scores["inflated"], "selected_start": scores.get("selected_start")}
    for result in ("validation", "separated", "concatenated"):
        yield from _list_metrics(row, result, scores)
    for metric, value in scores["train_space"].items():
        yield row | {"result": TRAIN_SPACE, "metric": metric, "value": value}


def _create_row(suite: Suite, run: BenchRun, stage: str, record: dict[str, Any]) -> ResultRow:
    return dict.fromkeys(COLUMNS) | {
        "data": run.data,
        "method": run.method,
        "protocol": suite.protocol,
        "stage": stage,
        "trial": run.trial,
        "seed": run.seed,
        "error": record["error"],
        "seconds": record["seconds"],
    }


def _list_metrics(row: ResultRow, result: str, scores: dict[str, Any]) -> Iterator[ResultRow]:
    """One row for each metric of a result, with start and gain where the run has them."""
    starts = scores.get("start", {}).get(result, {})
    for metric, value in scores.get(result, {}).items():
        start = starts.get(metric)
        gain = None if start is None or value is None else value - start
        yield row | {"result": result, "metric": metric, "value": value, "start": start, "gain": gain}


def _format_csv_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else value


def _build_schema(pyarrow: Any) -> Any:
    types = {
        **dict.fromkeys(("trial", "seed", "fold", "step", "steps"), pyarrow.int64()),
        **dict.fromkeys(("value", "start", "gain", "seconds"), pyarrow.float64()),
        **dict.fromkeys(("inflated", "selected_start"), pyarrow.bool_()),
    }
    return pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in COLUMNS])
