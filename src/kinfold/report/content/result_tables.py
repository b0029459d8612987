"""The tables of a report: means with intervals, what was published beside them, and how to make each row again."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kinfold.experiments.statistics import compare_methods
from kinfold.experiments.tables import AS_THEY_ARE, Entry, assemble_rows, describe_caution
from kinfold.report.content.inputs import Repetition, ReportInputs, Subject
from kinfold.report.content.path_redaction import configuration_text, shown_folder, without_places
from kinfold.report.content.published_values import published_values
from kinfold.report.content.reference_scores import references
from kinfold.training.config.parsing import read_tables
from kinfold.training.selection import is_better

Values = dict[str, dict[str, dict[int, float]]]  # method -> metric -> seed -> value
RESULTS = {  # where each result of a run and of a repeat is written, and what it is called
    "test": "test classes",
    "separated": "test classes",
    "concatenated": "test classes, the models of all folds side by side",
    "validation": "validation classes",
}
BOLD = "bold: the best, told apart from every other method (paired by seed, Holm's correction, 5 %)"
NOT_BOLD = "nothing is bold: no method is told apart from every other (paired by seed, Holm's correction, 5 %)"
ONE = "one repeat, so no intervals and no comparisons"
INTERVALS = "±: half width of the 95 % interval of the mean (Student's t), wide where repeats are few; not their range"


def tables(found: ReportInputs) -> list[dict[str, Any]]:
    """One table for each data set and result; a validation table where nothing else was measured."""
    made = []
    for data in found.data:
        subjects = [subject for subject in found.subjects if subject.data == data]
        values = {result: _values(subjects, result) for result in RESULTS}
        tested = [result for result in RESULTS if result != "validation" and _any(values[result])]
        shown = tested or ["validation" if _any(values["validation"]) else "test"]
        for result in shown:
            made.append(_table(found, subjects, result, values[result]))
        if tested and found.bench is None and len(subjects) == 1 and _any(values["validation"]):
            made.append(_table(found, subjects, "validation", values["validation"]))
    return made


def scores(repetition: Repetition) -> dict[str, Any]:
    """What scores.json says of a repeat or a run; nothing while it is not finished."""
    if repetition.whole is not None and repetition.whole.tested:
        return repetition.whole.scores
    # of a repeat of one fold that is trained, and whose test classes were not opened yet, what it reached without them
    single = repetition.alone or (repetition.whole is not None and len(repetition.runs) == 1)
    return repetition.runs[0].scores if single and repetition.runs[0].finished else {}


def metrics(subjects: Sequence[Subject]) -> list[str]:
    return [*dict.fromkeys(name for s in subjects for run in s.runs for name in run.config.evaluation.metrics)]


def _values(subjects: Sequence[Subject], result: str) -> Values:
    values: Values = {}
    for subject in subjects:
        own: dict[str, dict[int, float]] = {name: {} for name in metrics(subjects)}
        for repetition in subject.repetitions:
            for name, value in scores(repetition).get(result, {}).items():
                if value is not None and math.isfinite(value):
                    own.setdefault(name, {})[repetition.seed] = value
        values[subject.method] = own
    return values


def _starts(subjects: Sequence[Subject], result: str) -> Values:
    """What the same models scored before their first step, as far as it was written down."""
    values: Values = {}
    for subject in subjects:
        by_metric = values.setdefault(subject.method, {})
        for repetition in subject.repetitions:
            for name, value in scores(repetition).get("start", {}).get(result, {}).items():
                if value is not None and math.isfinite(value):
                    by_metric.setdefault(name, {})[repetition.seed] = value
    return values


def untrained(subject: Subject) -> str:
    """Why a method is compared with no other, where some of its repeats ended with the weights they began with."""
    marks = [entry["selected_start"] for entry in map(scores, subject.repetitions) if "selected_start" in entry]
    count = len(marks)
    return f"{sum(marks)} of {count} repeats selected the start: compared with no method" if any(marks) else ""


def _start_note(subject: Subject) -> str:
    """What to know of the numbers of a method of which some runs selected the start."""
    finished = [run.scores for run in subject.runs if run.finished]
    count = sum(bool(entry.get("selected_start")) for entry in finished)
    return untrained(subject) or (f"{count} of {len(finished)} runs selected the start" if count else "")


def _any(values: Values) -> bool:
    return any(seeds for own in values.values() for seeds in own.values())


def _table(found: ReportInputs, subjects: Sequence[Subject], result: str, values: Values) -> dict[str, Any]:
    data = subjects[0].data
    columns = metrics(subjects)
    published = published_values(found.folder, data, result)
    columns += [column for column in published.columns if column not in columns]
    notes = {subject.method: _why(found, subject, columns, values[subject.method]) for subject in subjects}
    for subject in subjects:
        selected = _start_note(subject)
        measured = [column for column in columns if selected and values[subject.method].get(column)]
        notes[subject.method] |= dict.fromkeys(measured, selected)
    left_out = {subject.method: why for subject in subjects if (why := untrained(subject))}
    starts = _starts(subjects, result)
    rows: list[dict[str, Any]] = []
    for method, entries in assemble_rows(values, published.values, notes, starts=starts, untrained=[*left_out]):
        if method not in values:
            continue
        subject = next(subject for subject in subjects if subject.method == method)
        rows.append(
            {
                "method": method,
                "cells": _cells(entries, columns, published.words.get(method, {}), published.printed.get(method, {})),
                "command": command(found, subject),
                "configuration": configuration(found, subject),
                "quoted": None,
            }
        )
    beside = references(found.folder, data, result)
    for method, entries in [entry for name, own in beside.items() for entry in assemble_rows({name: own})]:
        about = {"method": method, "cells": _cells(entries, columns, {}, {}), "command": "", "configuration": ""}
        rows.append({**about, "quoted": None, "reference": True})
    first = next((column for column in columns[:1] if any(row["cells"][column]["count"] for row in rows)), None)
    if first is not None:
        rows.sort(key=lambda row: _place(row["cells"][first]["mean"], is_better(first, 0.0, 1.0)))
    for quoted in published.quoted:
        entries = {column: Entry(None, value) for column, value in quoted.numbers.items()}
        cells = _cells(entries, columns, quoted.words, quoted.printed)
        about = {"method": quoted.label, "cells": cells, "command": "", "configuration": ""}
        rows.append({**about, "quoted": quoted.source})
    compared = _compared(found, values, [*left_out])
    several = max((len(seeds) for own in values.values() for seeds in own.values()), default=0) > 1
    told = [INTERVALS] if several else [ONE]
    if len(subjects) > 1 and several:
        told.append(BOLD if any(cell["bold"] for row in rows for cell in row["cells"].values()) else NOT_BOLD)
        fewest = min(len(seeds) for own in values.values() for seeds in own.values() if len(seeds) > 1)
        told += [describe_caution(fewest)] * bool(describe_caution(fewest))
    if len(subjects) > 1:
        told += [f"not compared: {method}: {why}" for method, why in left_out.items()]
    if beside:
        told.append(f"for reference, and no part of the comparisons: {'; '.join(beside)}")
    return {
        "caption": _caption(found, data, result),
        "columns": [_column(column) for column in columns],
        "rows": rows,
        "sorted": first,
        "gains": [name for name in columns if name == compared_metric(found)],
        "notes": [*told, *published.notes],
        "comparisons": compared,
    }


def _place(mean: float | None, smaller_is_better: bool) -> tuple[bool, float]:
    """To sort by: the best first, what has no result last."""
    if mean is None:
        return True, 0.0
    return False, mean if smaller_is_better else -mean


def _caption(found: ReportInputs, data: str, result: str) -> str:
    inflated = ", INFLATED: steps chosen on the test classes" if is_inflated(found) and result != "validation" else ""
    protocol = "" if found.protocol == "given" else f", {found.protocol}"
    return f"{data}{protocol}: {RESULTS[result]}{inflated}"


def is_inflated(found: ReportInputs) -> bool:
    each = [scores(repetition) for subject in found.subjects for repetition in subject.repetitions]
    return any(entry.get("inflated", False) for entry in each)


def _column(name: str) -> dict[str, Any]:
    fraction = not name.startswith(AS_THEY_ARE)
    return {
        "key": name,
        "title": f"{name}, %" if fraction else name,
        "factor": 100 if fraction else 1,
        "decimals": 1 if fraction else 3,
        "smaller_is_better": is_better(name, 0.0, 1.0),
    }


def _cells(
    entries: Mapping[str, Entry], columns: Sequence[str], words: Mapping[str, str], printed: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """words: what stands in the place of a published number that cannot be read; printed: numbers with their digits."""
    cells = {column: _cell(entries.get(column, Entry(None))) for column in columns}
    return {
        key: {**cell, "published": words.get(key, cell["published"]), "printed": printed.get(key)}
        for key, cell in cells.items()
    }


def _cell(entry: Entry) -> dict[str, Any]:
    interval = entry.interval
    return {
        "mean": None if interval is None else interval.mean,
        "half_width": None if interval is None or math.isnan(interval.half_width) else interval.half_width,
        "count": 0 if interval is None else interval.count,
        "published": entry.published,
        "bold": entry.bold,
        "note": without_places(entry.note),
        "start": None if entry.start is None else entry.start.mean,
        "gain": None if entry.gain is None else entry.gain.mean,
        "gain_half_width": None if entry.gain is None or math.isnan(entry.gain.half_width) else entry.gain.half_width,
    }


def _why(
    found: ReportInputs, subject: Subject, columns: Sequence[str], own: Mapping[str, Mapping[int, float]]
) -> dict[str, str]:
    """Why a cell has no number, where it has none."""
    cells = f"runs/{subject.data}/{subject.method}/"
    wrong = [why for name, why in found.failures.items() if name.startswith(cells)]
    why = f"failed: {wrong[0]}" if wrong else ""
    if not why and not all(repetition.complete for repetition in subject.repetitions):
        why = "not finished"
    return {column: why or "not measured" for column in columns if not own.get(column)}


def compared_metric(found: ReportInputs) -> str:
    """What the methods are compared by."""
    if found.bench is not None:
        return found.bench.suite.metric
    return found.subjects[0].runs[0].config.evaluation.metric


def _compared(found: ReportInputs, values: Values, left_out: Sequence[str]) -> list[dict[str, Any]]:
    """Every pair of methods (with the suite's baseline: each with it); none where there are no repeats to pair. Pairs
    of methods that are left out count in the correction and are not listed."""
    metric = compared_metric(found)
    chosen = {method: own.get(metric, {}) for method, own in values.items()}
    if len(values) < 2 or not any(len(seeds) > 1 for seeds in chosen.values()):
        return []
    baseline = None if found.bench is None else found.bench.suite.baseline
    compared = compare_methods(chosen, baseline, smaller_is_better=is_better(metric, 0.0, 1.0), untrained=left_out)
    listed = [row for row in compared.rows if not {row.first, row.second} & {*left_out}]
    rows = [(row, compared.find_significant(row.first, row.second)) for row in listed]
    return [{**row._asdict(), "told_apart": told, "column": metric} for row, told in rows]


def command(found: ReportInputs, subject: Subject) -> str:
    """What to type to make this row again, a line for each run."""
    begun = subject.runs
    whole = shown_folder(found.folder)
    if not begun:
        return f"kinfold bench --resume {shlex.quote(whole)}" if found.bench is not None else ""
    if found.bench is not None and not all(repetition.complete for repetition in subject.repetitions):
        return f"kinfold bench --resume {shlex.quote(whole)}"
    lines = []
    for run in begun:
        place = shown_folder(run.folder) if found.folder == run.folder else _below(found.folder, run.folder)
        if not run.finished:
            lines.append(f"kinfold train --resume {shlex.quote(place)}")
            continue
        # the runs of a protocol do not see the test classes; on their own they look at them when they are done
        opened = " --set data.test=open" if run.config.data.test == "withheld" else ""
        again = shlex.quote(f"again/{place}")
        lines.append(f"kinfold train {shlex.quote(f'{place}/configuration.toml')}{opened} --out {again}")
    return "\n".join(lines)


def _below(folder: Path, run: Path) -> str:
    return f"{shown_folder(folder)}/{run.relative_to(folder).as_posix()}"


def configuration(found: ReportInputs, subject: Subject) -> str:
    """The whole configuration of the first run, with what a search chose; of one not begun, what the suite says."""
    if subject.runs:
        return configuration_text(read_tables(subject.runs[0].run_folder.configuration))
    if found.bench is None:
        return ""
    suite = found.bench.suite
    return configuration_text(suite.build_run_tables(subject.data, subject.method, suite.seeds[0], 0))
