"""An opened bench: its results as rows, tables, paired tests and a plot."""

import html
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.repeat import Repeat
from kinfold.experiments.result_rows import ResultRow, read_result_rows, write_result_rows
from kinfold.experiments.search_budgets import SearchBudget, describe_budgets, read_search_budgets
from kinfold.experiments.statistics import MethodComparison, compare_methods, compute_interval
from kinfold.experiments.suite import Suite
from kinfold.experiments.table_styles import STYLES, Style
from kinfold.experiments.tables import (
    NOT_PERCENT,
    assemble_rows,
    describe_caution,
    describe_started_runs,
    describe_untrained,
    difference_unit,
    format_difference,
    format_probability,
    render_table,
)
from kinfold.files.atomic import write_text
from kinfold.files.documents import nan_to_null
from kinfold.files.paths import describe_missing
from kinfold.optional import import_optional
from kinfold.training.config.parsing import parse_table
from kinfold.training.loop.selection import is_better

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Bench:
    """A bench with all results that it has so far.

    A result is "separated": scores on the test classes, mean over the folds' models; "concatenated": scores of their
    concatenated embeddings; "validation": of one fold, or of a repeat as the mean over its folds; or "train": metrics
    of the training classes' embedding space. `start` is the score of the same model before its first step, `gain` the
    value minus it.

    Args:
        bench_folder: The folder of the bench.
        suite: What it compares.
        storage: URL of the database with its searches; None where they are in the folder.
    """

    bench_folder: BenchFolder
    suite: Suite
    storage: str | None = None

    @staticmethod
    def open(folder: Path | str, storage: str | None = None) -> "Bench":
        """Open the folder of a bench, which need not be complete.

        Args:
            folder: The folder.
            storage: URL of the database with its searches, if the bench was started with one.

        Raises:
            ValueError: The folder is not that of a bench, or its suite is damaged.
        """
        bench_folder = BenchFolder(folder)
        if not bench_folder.path.exists():
            raise ValueError(describe_missing(bench_folder.path, "folder"))
        if not bench_folder.started:
            raise ValueError(f"{bench_folder.path} is not the folder of a bench: it has no {bench_folder.suite.name}")
        try:
            return Bench(bench_folder, parse_table(Suite, bench_folder.read_suite(), ""), storage)
        except ValueError as error:
            raise ValueError(f"the bench {bench_folder.path} cannot be opened: {error}") from None

    def __repr__(self) -> str:
        suite = self.suite
        sizes = {"method": len(suite.methods), "data set": len(suite.datasets), "seed": len(suite.seeds)}
        counts = ", ".join(f"{size} {noun}{'s' * (size != 1)}" for noun, size in sizes.items())
        return f"Bench('{self.bench_folder.path}', {counts}, protocol={suite.protocol!r})"

    def _repr_html_(self) -> str:
        return f"<p><b>{html.escape(repr(self))}</b></p>\n{self.summary('html')}"

    @cached_property
    def rows(self) -> list[ResultRow]:
        """One row for every number, and one without a value for every failed task, in the order of the suite."""
        return read_result_rows(self.suite, self.bench_folder, self.storage)

    @property
    def failures(self) -> dict[str, str]:
        """Task -> its error."""
        return {row["folder"]: row["error"] for row in self.rows if row["error"]}

    @property
    def inflated(self) -> bool:
        """Whether a run was selected on the test classes."""
        return any(row["inflated"] for row in self.rows)

    @cached_property
    def searches(self) -> dict[tuple[str, str], SearchBudget]:
        """(data set, method) -> the trials of its search and the chosen settings."""
        return read_search_budgets(self.suite, self.bench_folder, self.storage)

    @property
    def results(self) -> list[str]:
        """The results on the test classes: "separated", and "concatenated" with several folds."""
        return ["separated", "concatenated"] if self.suite.folds > 1 else ["separated"]

    def metrics(self, data: str) -> list[str]:
        """Return the metrics that were measured on a data set."""
        return self.suite.build_config(data, self.suite.methods[0]).evaluation.metrics

    def values(self, data: str, result: str, metric: str, column: str = "value") -> dict[str, dict[int, float]]:
        """Return the results of all repeats.

        Args:
            data: Name of the data set.
            result: "separated", "concatenated", "validation" or "train".
            metric: Name of the metric.
            column: "value", "start" or "gain".

        Returns:
            Method -> seed -> value. A method without any result has an empty dictionary.
        """
        values: dict[str, dict[int, float]] = {method: {} for method in self.suite.methods}
        for row in self.rows:
            key = (row["data"], row["stage"], row["result"], row["metric"])
            if key == (data, "test", result, metric) and row[column] is not None:
                values[row["method"]][row["seed"]] = row[column]
        return values

    def list_untrained(self, data: str) -> dict[str, str]:
        """Return the methods that are not compared, because all runs of some repeat selected their initial weights.

        Args:
            data: Name of the data set.

        Returns:
            Method -> the reason.
        """
        repeats: dict[str, dict[int, bool]] = {}
        for row in self.rows:
            if row["data"] == data and row["stage"] == "test" and row["selected_start"] is not None:
                repeats.setdefault(row["method"], {})[row["seed"]] = row["selected_start"]
        reasons = {method: describe_untrained(selected.values()) for method, selected in repeats.items()}
        return {method: reason for method, reason in reasons.items() if reason}

    def compare(
        self, data: str | None = None, result: str = "separated", metric: str | None = None
    ) -> MethodComparison | None:
        """Compare every method with every other, or with the baseline, by paired tests over repeats.

        Args:
            data: Name of the data set; the first one unless given.
            result: "separated" or "concatenated".
            metric: Name of the metric; that of the suite unless given.

        Returns:
            The tests; None where no repeat was tested yet.
        """
        data, metric = data or self.suite.datasets[0], metric or self.suite.metric
        values = self.values(data, result, metric)
        if not any(values.values()):
            return None
        return compare_methods(
            values,
            self.suite.baseline,
            smaller_is_better=is_better(metric, 0.0, 1.0),
            untrained=[*self.list_untrained(data)],
            test=self.suite.test,
        )

    def table(self, data: str | None = None, result: str = "separated", style: Style = "text") -> str:
        """Return a table of all methods and metrics: mean ± half width of the 95 % interval over repeats.

        The best of a column is bold where it is significantly better than every other method. The metric of the suite
        also has its score before training, and the gain over it.

        Args:
            data: Name of the data set; the first one unless given.
            result: "separated" or "concatenated".
            style: "text", "markdown", "latex" or "html".
        """
        data, suite = data or self.suite.datasets[0], self.suite
        metrics = self.metrics(data)
        values, starts = (
            {metric: self.values(data, result, metric, column) for metric in metrics} for column in ("value", "start")
        )
        results = {method: {metric: values[metric][method] for metric in metrics} for method in suite.methods}
        notes = {}
        for method in suite.methods:
            error, start = self._describe_failure(data, method), self._describe_start(data, method)
            texts = {metric: start if results[method][metric] else error for metric in metrics}
            notes[method] = {metric: text for metric, text in texts.items() if text}
        rows = assemble_rows(
            results,
            notes=notes,
            starts={method: {metric: starts[metric][method] for metric in metrics} for method in suite.methods},
            untrained=[*self.list_untrained(data)],
            test=suite.test,
        )
        kind = "" if suite.folds == 1 else f", {result}"
        seeds = len(suite.seeds)
        repeats = f"mean ± half width of its 95 % interval over {seeds} repeats" if seeds > 1 else "1 repeat"
        inflated = ", INFLATED: steps chosen on the test classes" if self.inflated else ""
        caption = f"{data}: {suite.protocol}{kind}, {repeats}{inflated}"
        return render_table(rows, metrics, style, caption, gains=[suite.metric])

    def comparison_table(self, data: str | None = None, result: str = "separated", style: Style = "text") -> str:
        """Return a table of paired differences, with p before and after Holm's correction.

        In the style "text" it has only the pairs with the best method, or with the baseline. One repeat cannot be
        tested: the table is then empty.

        Args:
            data: Name of the data set; the first one unless given.
            result: "separated" or "concatenated".
            style: "text", "markdown", "latex" or "html".
        """
        data, metric = data or self.suite.datasets[0], self.suite.metric
        comparison = self.compare(data, result)
        if comparison is None or len(self.suite.seeds) < 2:
            return ""
        rules = STYLES[style]
        escape = rules.escape if style != "markdown" else str  # names of methods need no escapes there
        untrained = [rules.escape(f"not compared: {name}: {why}") for name, why in self.list_untrained(data).items()]
        tested = [pair for pair in comparison.pairs if not {pair.first, pair.second} & {*comparison.untrained}]
        if not tested:
            return "\n".join(untrained)
        only_best = style == "text" and self.suite.baseline is None
        shown = [pair for pair in tested if not only_best or comparison.best_trained in (pair.first, pair.second)]
        cells = [[escape(text) for text in ("difference", f"{metric}{difference_unit(metric)}", "p", "p, Holm")]]
        for pair in shown:
            star = " *" * comparison.is_significant(pair.first, pair.second)
            texts = (
                f"{pair.first} - {pair.second}",
                format_difference(metric, pair.difference, pair.half_width),
                format_probability(pair.p),
                format_probability(pair.adjusted) + star,
            )
            cells.append([escape(text) for text in texts])
        significant = any(comparison.is_significant(pair.first, pair.second) for pair in shown)
        meaning = f"{rules.escape('*')}: significant" if significant else "none of these is significant"
        family = "methods and the baseline" if self.suite.baseline else "pairs of methods"
        others = f"; all of them are in {self.bench_folder.table.name}" if len(tested) > len(shown) else ""
        footnotes = [
            f"{meaning} at 5 % after Holm's correction over all {family}{others}",
            "difference: the first minus the second, mean over paired repeats ± half width of its 95 % interval",
            describe_caution(min(interval.count for interval in comparison.intervals.values())),
        ]
        footnotes = [note if style in ("text", "markdown") else escape(note) for note in footnotes if note]
        return rules.format_table(cells, [*footnotes, *untrained], None)

    def summary(self, style: Style = "text") -> str:
        """Return all tables of the bench.

        Args:
            style: "text", "markdown", "latex" or "html".
        """
        parts = []
        for data in self.suite.datasets:
            for result in self.results:
                parts += [self.table(data, result, style), self.comparison_table(data, result, style)]
            parts.append(describe_budgets(self.searches, data))
        return "\n\n".join(part for part in parts if part) + "\n"

    def plot(
        self,
        data: str | None = None,
        result: str = "separated",
        metric: str | None = None,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Plot the mean of every method with its 95 % interval over repeats.

        Args:
            data: Name of the data set; the first one unless given.
            result: "separated" or "concatenated".
            metric: Name of the metric; that of the suite unless given.
            ax: Axes of matplotlib to draw on; new ones unless given.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        pyplot = import_optional("matplotlib.pyplot", "matplotlib", "report", "Bench.plot")
        data, metric = data or self.suite.datasets[0], metric or self.suite.metric
        values = {method: [*seeds.values()] for method, seeds in self.values(data, result, metric).items() if seeds}
        intervals = {method: compute_interval(numbers) for method, numbers in values.items()}
        methods, percent = [*intervals], not metric.startswith(NOT_PERCENT)
        factor = 100.0 if percent else 1.0
        if ax is None:
            ax = pyplot.subplots(figsize=(6.4, 0.8 + 0.35 * len(methods)), layout="constrained")[1]
        for position, interval in enumerate(intervals.values()):
            width = None if interval.count < 2 else factor * interval.half_width
            ax.errorbar(factor * interval.mean, position, xerr=width, fmt="o", color="C0", capsize=3)
        ax.set_yticks(range(len(methods)), methods)
        ax.invert_yaxis()
        ax.set_xlabel(f"{metric}{', %' if percent else ''}")
        ax.set_title(f"{data}, {result}")
        axes: Axes = ax
        return axes

    def to_dictionary(self) -> dict[str, Any]:
        """Return means, intervals and paired tests as plain data, for JSON."""
        results = []
        for data in self.suite.datasets:
            for result in self.results:
                for metric in self.metrics(data):
                    comparison = self.compare(data, result, metric)
                    if comparison is not None:
                        results.append(self._describe_comparison(data, result, metric, comparison))
        searches = [{"data": data, "method": method, **asdict(s)} for (data, method), s in self.searches.items()]
        document: dict[str, Any] = nan_to_null(
            {
                "folder": str(self.bench_folder.path),
                "protocol": self.suite.protocol,
                "seeds": self.suite.seeds,
                "searches": searches,
                "inflated": self.inflated,
                "failed": self.failures,
                "results": results,
            }
        )
        return document

    def write(self) -> list[Path]:
        """Write results.csv, results.parquet where pyarrow is installed, and table.md.

        Returns:
            The files.
        """
        write_result_rows(self.rows, self.bench_folder)
        write_text(self.bench_folder.table, self.summary("markdown"), self.bench_folder.path)
        files = (self.bench_folder.results, self.bench_folder.parquet, self.bench_folder.table)
        return [path for path in files if path.is_file()]

    def open_repeat(self, data: str, method: str, seed: int) -> Repeat:
        """Open one repeat, a model that embeds.

        Args:
            data: Name of the data set.
            method: Name of the method.
            seed: Seed of the repeat.
        """
        return Repeat.open(self.bench_folder.resolve_path(BenchRun(data, method, seed, 0).repeat_name))

    def _describe_comparison(self, data: str, result: str, metric: str, comparison: MethodComparison) -> dict[str, Any]:
        methods = {}
        for name, interval in comparison.intervals.items():
            methods[name] = vars(interval).copy()
            for column in ("start", "gain"):
                values = self.values(data, result, metric, column)[name]
                methods[name][column] = vars(compute_interval([*values.values()])) if values else None
        return {
            "data": data,
            "result": result,
            "metric": metric,
            "best": comparison.best,
            "real": comparison.best_is_significant,
            "not_compared": self.list_untrained(data),
            "methods": methods,
            "comparisons": [pair._asdict() for pair in comparison.pairs],
        }

    def _describe_start(self, data: str, method: str) -> str:
        """Footnote of a method with runs that selected their initial weights."""
        selected = {
            row["folder"]: bool(row["selected_start"])
            for row in self.rows
            if (row["data"], row["method"], row["stage"]) == (data, method, "train") and not row["error"]
        }
        return self.list_untrained(data).get(method) or describe_started_runs(selected.values())

    def _describe_failure(self, data: str, method: str) -> str:
        errors = (row["error"] for row in self.rows if (row["data"], row["method"]) == (data, method) and row["error"])
        return next((f"failed: {error}" for error in errors), "")
