"""What a bench found: one tidy row per number, and from those the tables and comparisons."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.repeat import Repeat, read_repeat_scores
from kinfold.experiments.schedule import is_searched, open_study
from kinfold.experiments.search_budgets import SearchBudget, count_search_trials, describe_budgets
from kinfold.experiments.statistics import MethodComparison, compare_methods
from kinfold.experiments.suite import SEARCH_SEED, Suite
from kinfold.experiments.tables import (
    Style,
    assemble_rows,
    describe_caution,
    difference_unit,
    escape_markdown,
    format_difference,
    format_markdown,
    format_probability,
    format_text,
    render,
)
from kinfold.files.atomic import write_atomic, write_text
from kinfold.training import Run
from kinfold.training.config.parsing import parse_table
from kinfold.training.loop.selection import is_better

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
TIMES = ("seconds",)  # what differs from one run of the same bench to the next
SPACE = "train"  # the result that holds the metrics of the space of the training classes
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Bench:
    """The folder of a bench with what is in it so far.

    result "validation": of one fold, or of a repeat as the mean over its folds. "separated": on the test classes, the
    mean over the folds' models. "concatenated": of these models side by side. "train": the space of training classes.

    start: what the same model scored before its first step; gain: the value less it. selected_start: whether the run,
    or every run of the repeat, was asked to train and ended with the weights it began with.
    """

    place: BenchFolder
    suite: Suite
    storage: str | None = None

    @staticmethod
    def open(folder: Path | str, storage: str | None = None) -> "Bench":
        place = BenchFolder(folder)
        if not place.begun:
            raise ValueError(f"{place.path} is not the folder of a bench: it has no {place.suite.name}")
        try:
            return Bench(place, parse_table(Suite, place.read_suite(), ""), storage)
        except ValueError as wrong:
            raise ValueError(f"the bench {place.path} cannot be opened: {wrong}") from None

    @cached_property
    def rows(self) -> list[Row]:
        """Every number there is, and a row without one for every failure, in the order of the suite."""
        return [row for data in self.suite.sources for method in self.suite.methods for row in self._of(data, method)]

    @property
    def failures(self) -> dict[str, str]:
        """Cell -> what went wrong."""
        return {row["folder"]: row["error"] for row in self.rows if row["error"]}

    @property
    def inflated(self) -> bool:
        return any(row["inflated"] for row in self.rows)

    @cached_property
    def searches(self) -> dict[tuple[str, str], SearchBudget]:
        """(data set, method) -> the trials of its search and what they chose."""
        return count_search_trials(self.suite, self.place, self.storage)

    def values(self, data: str, result: str, metric: str, column: str = "value") -> dict[str, dict[int, float]]:
        """method -> seed -> value (or another column) of a repeat; a method without any repeat is there, empty."""
        found: dict[str, dict[int, float]] = {method: {} for method in self.suite.methods}
        for row in self.rows:
            where = (row["data"], row["stage"], row["result"], row["metric"])
            if where == (data, "test", result, metric) and row[column] is not None:
                found[row["method"]][row["seed"]] = row[column]
        return found

    def untrained(self, data: str) -> dict[str, str]:
        """Method -> why no statement compares it: in some repeat every run selected the start."""
        repeats: dict[str, dict[int, bool]] = {}
        for row in self.rows:
            if row["data"] == data and row["stage"] == "test" and row["selected_start"] is not None:
                repeats.setdefault(row["method"], {})[row["seed"]] = row["selected_start"]
        return {
            method: f"{sum(marks.values())} of {len(marks)} repeats selected the start: compared with no method"
            for method, marks in repeats.items()
            if any(marks.values())
        }

    def _start_note(self, data: str, method: str) -> str:
        """What to know of a method of which some runs selected the start."""
        untrained = self.untrained(data).get(method)
        if untrained is not None:
            return untrained
        marks = {
            row["folder"]: row["selected_start"]
            for row in self.rows
            if (row["data"], row["method"], row["stage"]) == (data, method, "train") and not row["error"]
        }
        count = sum(bool(mark) for mark in marks.values())
        return f"{count} of {len(marks)} runs selected the start" if count else ""

    @property
    def results(self) -> list[str]:
        """Which results on the test classes there are."""
        return ["separated", "concatenated"] if self.suite.folds > 1 else ["separated"]

    def metrics(self, data: str) -> list[str]:
        return self.suite.configuration(data, self.suite.methods[0]).evaluation.metrics

    def compared(self, data: str, result: str, metric: str | None = None) -> MethodComparison | None:
        """Every method with every other (or with the baseline) by repeat; None where nothing was tested yet."""
        metric = self.suite.metric if metric is None else metric
        values = self.values(data, result, metric)
        if not any(values.values()):
            return None
        less = is_better(metric, 0.0, 1.0)
        return compare_methods(values, self.suite.baseline, smaller_is_better=less, untrained=[*self.untrained(data)])

    def table(self, data: str, result: str, style: Style = "text") -> str:
        """Mean and interval over repeats of every metric; the best in bold where it differs from all others. Beside the
        metric of the suite stand its value before the first step and the gain over it."""
        metrics = self.metrics(data)
        found = {metric: self.values(data, result, metric) for metric in metrics}
        results = {method: {metric: found[metric][method] for metric in metrics} for method in self.suite.methods}
        started = {metric: self.values(data, result, metric, "start") for metric in metrics}
        starts = {method: {metric: started[metric][method] for metric in metrics} for method in self.suite.methods}
        notes = {}
        for method in self.suite.methods:
            failed, start = self._why(data, method), self._start_note(data, method)
            own = {metric: start if results[method][metric] else failed for metric in metrics}
            notes[method] = {metric: note for metric, note in own.items() if note}
        kind = "" if self.suite.folds == 1 else f", {result}"
        inflated = ", INFLATED: steps chosen on the test classes" if self.inflated else ""
        seeds = len(self.suite.seeds)
        repeats = f"mean ± half width of its 95 % interval over {seeds} repeats" if seeds > 1 else "1 repeat"
        caption = f"{data}: {self.suite.protocol}{kind}, {repeats}{inflated}"
        rows = assemble_rows(results, notes=notes, starts=starts, untrained=[*self.untrained(data)])
        return render(rows, metrics, style, caption, gains=[self.suite.metric])

    def comparisons(self, data: str, result: str, style: Style = "text") -> str:
        """The paired differences of the suite's metric, with p before and after Holm's correction; in a terminal only
        those of the best method, or of the baseline. One repeat cannot tell anything apart."""
        found = self.compared(data, result)
        if found is None or len(self.suite.seeds) < 2:
            return ""
        metric = self.suite.metric
        cells = [["difference", f"{metric}{difference_unit(metric)}", "p", "p, Holm"]]
        starred, compared = False, 0
        some = style == "text" and self.suite.baseline is None
        for row in found.rows:
            if row.first in found.untrained or row.second in found.untrained:
                continue
            compared += 1
            if some and found.leader not in (row.first, row.second):
                continue
            apart = found.find_significant(row.first, row.second)
            starred |= apart
            cells.append(
                [
                    f"{row.first} - {row.second}",
                    format_difference(metric, row.difference, row.half_width),
                    format_probability(row.p),
                    format_probability(row.adjusted) + " *" * apart,
                ]
            )
        draw = format_markdown if style == "markdown" else format_text
        others = "methods and the baseline" if self.suite.baseline else "pairs of methods"
        where = f"; all of them are in {self.place.table.name}" if some and compared >= len(cells) else ""
        star = "\\*" if style == "markdown" else "*"  # Markdown would take it for the start of something
        meaning = f"{star}: told apart" if starred else "none of these is told apart"
        footnotes = [
            f"{meaning} at 5 % after Holm's correction over all {others}{where}",
            "difference: the first less the second, mean over paired repeats ± half width of its 95 % interval",
            describe_caution(min(found.intervals[name].count for name in found.intervals)),
        ]
        left_out = [f"not compared: {name}: {why}" for name, why in self.untrained(data).items()]
        left_out = [escape_markdown(note) if style == "markdown" else note for note in left_out]
        if not compared:
            return "\n".join(left_out)
        footnotes += left_out
        return draw(cells, [note for note in footnotes if note], None)

    def summary(self, style: Style = "text") -> str:
        """All tables of the bench."""
        parts = []
        for data in self.suite.sources:
            for result in self.results:
                parts += [self.table(data, result, style), self.comparisons(data, result, style)]
            parts.append(describe_budgets(self.searches, data))
        return "\n\n".join(part for part in parts if part) + "\n"

    def write(self) -> None:
        """results.csv, results.parquet where pyarrow is installed, and table.md."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _printed(value) for key, value in row.items()} for row in self.rows)
        write_text(self.place.results, text.getvalue(), self.place.path)
        write_text(self.place.table, self.summary("markdown"), self.place.path)
        if find_spec("pyarrow") is None:
            return
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        table = pyarrow.Table.from_pylist(self.rows, schema=_schema(pyarrow))
        write_atomic(self.place.parquet, lambda file: parquet.write_table(table, file), self.place.path)

    def _of(self, data: str, method: str) -> Iterator[Row]:
        suite = self.suite
        if is_searched(suite, data, method) and self._search_begun():
            for trial, _ in open_study(suite, self.place, data, method, self.storage).history():
                for fold in range(suite.folds):
                    yield from self._of_cell(BenchRun(data, method, SEARCH_SEED, fold, trial.number), "search")
        for seed in suite.seeds:
            cells = [BenchRun(data, method, seed, fold) for fold in range(suite.folds)]
            for cell in cells:
                yield from self._of_cell(cell, "train")
            yield from self._of_repeat(cells[0])

    def _search_begun(self) -> bool:
        return self.storage is not None or self.place.journal.is_file()

    def _of_cell(self, cell: BenchRun, stage: str) -> Iterator[Row]:
        record = self.place.record(cell.name)
        if record is None:
            return
        about = self._about(cell, stage, record) | {"fold": cell.fold, "folder": cell.name}
        if record["error"] is not None:
            yield about
            return
        scores = Run.open(self.place.inside(cell.name)).scores
        about |= {"step": scores["step"], "steps": scores["steps"], "inflated": scores["inflated"]}
        about["selected_start"] = scores.get("selected_start")
        yield from _measured(about, "validation", scores)

    def _of_repeat(self, cell: BenchRun) -> Iterator[Row]:
        record = self.place.record(cell.repeat)
        if record is None:
            return
        about = self._about(cell, "test", record) | {"folder": cell.repeat}
        if record["error"] is not None:
            yield about
            return
        scores = read_repeat_scores(self.place.inside(cell.repeat))
        about |= {"inflated": scores["inflated"], "selected_start": scores.get("selected_start")}
        for result in ("validation", "separated", "concatenated"):
            yield from _measured(about, result, scores)
        for metric, value in scores["train_space"].items():
            yield about | {"result": SPACE, "metric": metric, "value": value}

    def _about(self, cell: BenchRun, stage: str, record: dict[str, Any]) -> Row:
        known = {
            "data": cell.data,
            "method": cell.method,
            "protocol": self.suite.protocol,
            "stage": stage,
            "trial": cell.trial,
            "seed": cell.seed,
            "error": record["error"],
            "seconds": record["seconds"],
        }
        return dict.fromkeys(COLUMNS) | known

    def _why(self, data: str, method: str) -> str:
        wrong = [row["error"] for row in self.rows if (row["data"], row["method"]) == (data, method) and row["error"]]
        return f"failed: {wrong[0]}" if wrong else ""


def _measured(about: Row, result: str, scores: dict[str, Any]) -> Iterator[Row]:
    """A row for each metric of a result, with the start and the gain where they are known."""
    starts = scores.get("start", {}).get(result, {})
    for metric, value in scores.get(result, {}).items():
        start = starts.get(metric)
        gain = None if start is None or value is None else value - start
        yield about | {"result": result, "metric": metric, "value": value, "start": start, "gain": gain}


def repeat(bench: Bench, data: str, method: str, seed: int) -> Repeat:
    """The runs of one repeat, as one model that embeds and is exported."""
    return Repeat.open(bench.place.inside(BenchRun(data, method, seed, 0).repeat))


def _printed(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else value


def _schema(pyarrow: Any) -> Any:
    kinds = {
        **dict.fromkeys(("trial", "seed", "fold", "step", "steps"), pyarrow.int64()),
        **dict.fromkeys(("value", "start", "gain", "seconds"), pyarrow.float64()),
        **dict.fromkeys(("inflated", "selected_start"), pyarrow.bool_()),
    }
    return pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
