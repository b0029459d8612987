"""The result tables of a report: means with intervals, published values beside them, and how to rerun each row."""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from kinfold.experiments.statistics import compare_methods
from kinfold.experiments.tables import (
    NOT_PERCENT,
    TableEntry,
    assemble_rows,
    describe_caution,
    describe_started_runs,
    describe_untrained,
)
from kinfold.report.content.inputs import ReportInputs, ReportMethod, ReportRepeat
from kinfold.report.content.path_redaction import display_folder, redact_config, redact_paths
from kinfold.report.content.published_values import PublishedValues, read_published_values
from kinfold.report.content.reference_scores import read_references
from kinfold.training.config.parsing import read_tables
from kinfold.training.loop.selection import is_better

Values = dict[str, dict[str, dict[int, float]]]  # method -> metric -> seed -> value
RESULTS = {  # keys of scores.json, and what they are called
    "test": "test classes",
    "separated": "test classes",
    "concatenated": "test classes, the models of all folds side by side",
    "validation": "validation classes",
}
_TEST = "paired by seed, Holm's correction, 5 %"
BOLD = f"bold: the best, significantly better than every other method ({_TEST})"
NOT_BOLD = f"nothing is bold: no method is significantly better than every other ({_TEST})"
ONE_REPEAT = "one repeat, so no intervals and no comparisons"
INTERVALS = "±: half width of the 95 % interval of the mean (Student's t), wide where repeats are few; not their range"


def describe_tables(inputs: ReportInputs) -> list[dict[str, Any]]:
    """Describe a table for each dataset and result; a validation table if nothing else was measured."""
    tables = []
    for data in inputs.data:
        methods = [method for method in inputs.methods if method.data == data]
        values = {result: _collect_values(methods, result) for result in RESULTS}
        tested = [result for result in RESULTS if result != "validation" and _has_values(values[result])]
        for result in tested or ["validation" if _has_values(values["validation"]) else "test"]:
            tables.append(_describe_table(inputs, methods, result, values[result]))
        if tested and inputs.bench is None and len(methods) == 1 and _has_values(values["validation"]):
            tables.append(_describe_table(inputs, methods, "validation", values["validation"]))
    return tables


def read_scores(repeat: ReportRepeat) -> dict[str, Any]:
    """Return scores.json of a repeat or a run; empty before it is finished."""
    if repeat.repeat is not None and repeat.repeat.tested:
        return repeat.repeat.scores
    # a repeat of one fold that is trained but not tested yet has the scores of its run
    single = repeat.standalone or (repeat.repeat is not None and len(repeat.runs) == 1)
    return repeat.runs[0].scores if single and repeat.runs[0].finished else {}


def is_inflated(inputs: ReportInputs) -> bool:
    """Return whether any scores were selected on the test classes."""
    scores = [read_scores(repeat) for method in inputs.methods for repeat in method.repeats]
    return any(entry.get("inflated", False) for entry in scores)


def get_main_metric(inputs: ReportInputs) -> str:
    """Return the metric by which methods are compared."""
    if inputs.bench is not None:
        return inputs.bench.suite.metric
    return inputs.methods[0].runs[0].config.evaluation.metric


def _get_test(inputs: ReportInputs) -> str:
    """Return the test that methods are compared by, that of the suite."""
    return "t" if inputs.bench is None else inputs.bench.suite.test


def _list_metrics(methods: Sequence[ReportMethod]) -> list[str]:
    runs = [run for method in methods for run in method.runs]
    return [*dict.fromkeys(name for run in runs for name in run.config.evaluation.metrics)]


def _collect_values(methods: Sequence[ReportMethod], result: str) -> Values:
    """Values of all metrics that were asked for, empty for those without a value."""
    asked = _list_metrics(methods)
    values: Values = {}
    for method in methods:
        scores = {repeat.seed: read_scores(repeat).get(result, {}) for repeat in method.repeats}
        values[method.name] = {name: {} for name in asked} | _group_by_metric(scores)
    return values


def _collect_start_values(methods: Sequence[ReportMethod], result: str) -> Values:
    """Values of the same models before their first step, where they were recorded."""
    return {
        method.name: _group_by_metric(
            {repeat.seed: read_scores(repeat).get("start", {}).get(result, {}) for repeat in method.repeats}
        )
        for method in methods
    }


def _group_by_metric(scores: Mapping[int, Mapping[str, float | None]]) -> dict[str, dict[int, float]]:
    """Metric -> seed -> value, without undefined values."""
    values: dict[str, dict[int, float]] = {}
    for seed, metrics in scores.items():
        for name, value in metrics.items():
            if value is not None and math.isfinite(value):
                values.setdefault(name, {})[seed] = value
    return values


def _has_values(values: Values) -> bool:
    return any(seeds for metrics in values.values() for seeds in metrics.values())


def _describe_untrained(method: ReportMethod) -> str:
    """Why a method is not compared: some of its repeats selected the weights before training."""
    scores = map(read_scores, method.repeats)
    return describe_untrained([entry["selected_start"] for entry in scores if "selected_start" in entry])


def _describe_start(method: ReportMethod) -> str:
    """A note for a method of which some runs selected the weights before training."""
    selected = [bool(run.scores.get("selected_start")) for run in method.runs if run.finished]
    return _describe_untrained(method) or describe_started_runs(selected)


def _describe_table(
    inputs: ReportInputs, methods: Sequence[ReportMethod], result: str, values: Values
) -> dict[str, Any]:
    data = methods[0].data
    columns = _list_metrics(methods)
    published = read_published_values(inputs.folder, data, result)
    columns += [column for column in published.columns if column not in columns]
    untrained = {method.name: reason for method in methods if (reason := _describe_untrained(method))}
    references = read_references(inputs.folder, data, result)
    rows = _describe_measured_rows(inputs, methods, result, values, columns, published, [*untrained])
    for name, metrics in references.items():
        ((_, entries),) = assemble_rows({name: metrics})
        rows.append({**_describe_row(name, _describe_cells(entries, columns)), "reference": True})
    sort_column = next((name for name in columns[:1] if any(row["cells"][name]["count"] for row in rows)), None)
    if sort_column is not None:
        rows.sort(key=lambda row: rank_mean(row["cells"][sort_column]["mean"], sort_column))
    for quoted in published.quoted:
        entries = {column: TableEntry(None, value) for column, value in quoted.numbers.items()}
        cells = _describe_cells(entries, columns, quoted.unreadable, quoted.printed)
        rows.append({**_describe_row(quoted.label, cells), "quoted": quoted.source})
    notes = _describe_notes(values, rows, untrained)
    if references:
        notes.append(f"for reference, and no part of the comparisons: {'; '.join(references)}")
    return {
        "caption": _describe_caption(inputs, data, result),
        "columns": [_describe_column(column) for column in columns],
        "rows": rows,
        "sorted": sort_column,
        "gains": [name for name in columns if name == get_main_metric(inputs)],
        "notes": [*notes, *published.notes],
        "comparisons": _compare(inputs, values, [*untrained]),
    }


def _describe_measured_rows(
    inputs: ReportInputs,
    methods: Sequence[ReportMethod],
    result: str,
    values: Values,
    columns: Sequence[str],
    published: PublishedValues,
    untrained: Sequence[str],
) -> list[dict[str, Any]]:
    notes = {}
    for method in methods:
        notes[method.name] = _explain_missing_values(inputs, method, columns, values[method.name])
        if note := _describe_start(method):
            notes[method.name] |= {column: note for column in columns if values[method.name].get(column)}
    starts = _collect_start_values(methods, result)
    by_name = {method.name: method for method in methods}
    rows = []
    test = _get_test(inputs)
    for name, entries in assemble_rows(values, published.values, notes, starts=starts, untrained=untrained, test=test):
        if name in by_name:
            unreadable, printed = published.unreadable.get(name, {}), published.printed.get(name, {})
            cells = _describe_cells(entries, columns, unreadable, printed)
            command, config = write_command(inputs, by_name[name]), _write_config(inputs, by_name[name])
            rows.append(_describe_row(name, cells, command, config))
    return rows


def _describe_row(method: str, cells: dict[str, Any], command: str = "", config: str = "") -> dict[str, Any]:
    return {"method": method, "cells": cells, "command": command, "configuration": config, "quoted": None}


def _describe_notes(values: Values, rows: Sequence[dict[str, Any]], untrained: Mapping[str, str]) -> list[str]:
    counts = [len(seeds) for metrics in values.values() for seeds in metrics.values()]
    several = max(counts, default=0) > 1
    notes = [INTERVALS if several else ONE_REPEAT]
    if len(values) > 1 and several:
        notes.append(BOLD if any(cell["bold"] for row in rows for cell in row["cells"].values()) else NOT_BOLD)
        caution = describe_caution(min(count for count in counts if count > 1))
        notes += [caution] if caution else []
    if len(values) > 1:
        notes += [f"not compared: {method}: {reason}" for method, reason in untrained.items()]
    return notes


def rank_mean(mean: float | None, metric: str) -> tuple[bool, float]:
    """Sort key: the best mean first, None last."""
    if mean is None:
        return True, 0.0
    return False, mean if is_better(metric, 0.0, 1.0) else -mean


def _describe_caption(inputs: ReportInputs, data: str, result: str) -> str:
    inflated = ", INFLATED: steps chosen on the test classes" if is_inflated(inputs) and result != "validation" else ""
    protocol = "" if inputs.protocol == "given" else f", {inputs.protocol}"
    return f"{data}{protocol}: {RESULTS[result]}{inflated}"


def _describe_column(name: str) -> dict[str, Any]:
    fraction = not name.startswith(NOT_PERCENT)
    return {
        "key": name,
        "title": f"{name}, %" if fraction else name,
        "factor": 100 if fraction else 1,
        "decimals": 1 if fraction else 3,
        "smaller_is_better": is_better(name, 0.0, 1.0),
    }


def _describe_cells(
    entries: Mapping[str, TableEntry],
    columns: Sequence[str],
    unreadable: Mapping[str, str] | None = None,
    printed: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Cells by column; `unreadable` and `printed` are those of `PublishedValues`."""
    cells = {}
    for column in columns:
        entry = entries.get(column, TableEntry(None))
        interval, gain = entry.interval, entry.gain
        cells[column] = {
            "mean": None if interval is None else interval.mean,
            "half_width": None if interval is None or math.isnan(interval.half_width) else interval.half_width,
            "count": 0 if interval is None else interval.count,
            "published": (unreadable or {}).get(column, entry.published),
            "printed": (printed or {}).get(column),
            "bold": entry.bold,
            "note": redact_paths(entry.note),
            "start": None if entry.start is None else entry.start.mean,
            "gain": None if gain is None else gain.mean,
            "gain_half_width": None if gain is None or math.isnan(gain.half_width) else gain.half_width,
        }
    return cells


def _explain_missing_values(
    inputs: ReportInputs, method: ReportMethod, columns: Sequence[str], values: Mapping[str, Mapping[int, float]]
) -> dict[str, str]:
    """Column -> why it has no number."""
    folder = f"runs/{method.data}/{method.name}/"
    errors = [error for name, error in inputs.failures.items() if name.startswith(folder)]
    reason = f"failed: {errors[0]}" if errors else "not measured"
    if not errors and not all(repeat.complete for repeat in method.repeats):
        reason = "not finished"
    return {column: reason for column in columns if not values.get(column)}


def _compare(inputs: ReportInputs, values: Values, untrained: Sequence[str]) -> list[dict[str, Any]]:
    """Compare every pair of methods, or each with the baseline of the suite; nothing without repeats to pair.

    Pairs with an untrained method count in the correction and are not listed.
    """
    metric = get_main_metric(inputs)
    scores = {method: metrics.get(metric, {}) for method, metrics in values.items()}
    if len(values) < 2 or not any(len(seeds) > 1 for seeds in scores.values()):
        return []
    baseline = None if inputs.bench is None else inputs.bench.suite.baseline
    comparison = compare_methods(
        scores,
        baseline,
        smaller_is_better=is_better(metric, 0.0, 1.0),
        untrained=untrained,
        test=_get_test(inputs),
    )
    return [
        {**row._asdict(), "significant": comparison.is_significant(row.first, row.second), "column": metric}
        for row in comparison.pairs
        if not {row.first, row.second} & {*untrained}
    ]


def write_command(inputs: ReportInputs, method: ReportMethod) -> str:
    """Write the commands that rerun a row, one line for each run."""
    complete = all(repeat.complete for repeat in method.repeats)
    if inputs.bench is not None and not (method.runs and complete):
        return f"kinfold bench --resume {shlex.quote(display_folder(inputs.folder))}"
    lines = []
    for run in method.runs:
        folder = display_folder(inputs.folder)
        if run.folder != inputs.folder:
            folder = f"{folder}/{run.folder.relative_to(inputs.folder).as_posix()}"
        if not run.finished:
            lines.append(f"kinfold train --resume {shlex.quote(folder)}")
            continue
        # a run of a protocol does not evaluate the test classes; alone it does so at its end
        test = " --set data.test=open" if run.config.data.test == "withheld" else ""
        config, out = shlex.quote(f"{folder}/configuration.toml"), shlex.quote(f"again/{folder}")
        lines.append(f"kinfold train {config}{test} --out {out}")
    return "\n".join(lines)


def _write_config(inputs: ReportInputs, method: ReportMethod) -> str:
    """Configuration of the first run, with the result of a search; before it starts, that of the suite."""
    if method.runs:
        return redact_config(read_tables(method.runs[0].run_folder.configuration))
    if inputs.bench is None:
        return ""
    suite = inputs.bench.suite
    return redact_config(suite.build_run_tables(method.data, method.name, suite.seeds[0], 0))
