"""Our numbers beside the published ones, with what has to be known to compare them."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kinfold.experiments.table_styles import Style, escape_markdown, format_markdown, format_text
from kinfold.experiments.tables import BOLD_NOTE, TableEntry, assemble_rows
from kinfold.files.atomic import write_text
from kinfold.files.documents import write_result
from kinfold.papers.outline import list_caveats, printed_numbers, published_numbers
from kinfold.papers.plan import ReproductionPlan
from kinfold.papers.published import PublishedRow
from kinfold.papers.reproduce import Reproduction, RowSearch
from kinfold.papers.table_files import COLUMN_GROUPS, TOY, parse_metric

OUR_SPREAD = "half width of the 95 % interval of the mean"


def format_table(reproduction: Reproduction, style: Style = "text") -> str:
    """Format one data set of a table: a line for each row that was run, and for each that is a number only."""
    heading, *body = list_lines(reproduction, "**" if style == "markdown" else "*")
    entries = _assemble_entries(reproduction)
    any_bold = any(entry.bold for row_entries in entries.values() for entry in row_entries.values())
    bold = [BOLD_NOTE.format("**Bold**" if style == "markdown" else "between asterisks")] * any_bold
    caption, footnotes = _format_caption(reproduction), list_footnotes(reproduction)
    if style == "markdown":
        # numbers need no escapes
        lines = [heading, *([escape_markdown(name), *rest] for name, *rest in body)]
        return format_markdown(lines, [*bold, *map(escape_markdown, footnotes)], escape_markdown(caption))
    return format_text([heading, *body], [*bold, *footnotes], caption)


def list_lines(reproduction: Reproduction, mark: str = "*") -> list[list[str]]:
    """List the cells of a table, line by line, the heading first.

    Args:
        reproduction: Our numbers.
        mark: Stands before and behind a number that is significantly better than all others.
    """
    plan, data = reproduction.plan, reproduction.data
    entries = _assemble_entries(reproduction)
    axis = [*plan.table.vary][:1]
    rows = [row for row in plan.table.rows if row in plan.rows or (row in plan.not_run and data in row.published)]
    with_published = {column for row in rows for column in row.published.get(data, {})}
    heading = ["method", *axis]
    for column in reproduction.columns:
        heading.append(f"{_metric_last(column)}{', %' if _is_percent(column) else ''}")
        heading += ["published"] * (column in with_published)
    body = []
    for row in rows:
        source = row.quoted_from(data)
        quoted = "" if source is None else f" (quoted from {source})"
        cells = [f"{row.label}{quoted}", *([_format_axis_value(reproduction, row)] if axis else [])]
        for column in reproduction.columns:
            entry = entries.get(row.name, {}).get(_metric_last(column))
            cells.append("" if row.not_run is not None else _format_entry(entry, column, mark))
            if column in with_published:
                cells.append(printed_numbers(row, data).get(column, ""))
        body.append(cells)
    return [heading, *body]


def format_report(reproduction: Reproduction, style: Style = "text") -> str:
    """Format the table, the differences from the paper, and the caveats."""
    lines = [format_table(reproduction, style), ""]
    lines += [f"- {note}" for note in reproduction.plan.notes]
    lines += ["", "caveats:", ""] if style == "markdown" else ["caveats:"]
    lines += [f"- {caveat}" for caveat in list_caveats(reproduction.plan)]
    return "\n".join(lines)


def write_report(reproduction: Reproduction, folder: Path) -> Path:
    """Write published.md and published.json.

    Args:
        reproduction: The numbers of one data set.
        folder: Where the files are written.

    Returns:
        The path of published.md.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "published.md"
    write_text(path, format_report(reproduction, "markdown") + "\n", folder)
    write_result(folder / "published.json", to_dictionary(reproduction), folder)
    return path


def to_dictionary(reproduction: Reproduction) -> dict[str, Any]:
    """Return the same as plain data: our numbers as fractions, published ones as printed."""
    plan, data = reproduction.plan, reproduction.data
    entries = _assemble_entries(reproduction)
    rows = []
    for row in (*plan.rows, *plan.not_run):
        document: dict[str, Any] = {
            "row": row.name,
            "label": row.label,
            "quoted": row.quoted_from(data),
            "not_run": row.not_run,
            "x": row.x,
        }
        ours: dict[str, Any] = {}
        if row.not_run is None:
            if plan.table.vary:
                document["ran_at"] = find_axis_value(plan, data, row)
            document["settings"] = plan.settings[data][row.name]
            row_entries = entries.get(row.name, {})
            ours = {column: _to_plain(row_entries.get(_metric_last(column))) for column in reproduction.columns}
        if row.name in reproduction.searches:
            document["search"] = asdict(reproduction.searches[row.name])
        numbers = {"ours": ours, "published": published_numbers(row, data), "printed": printed_numbers(row, data)}
        rows.append({**document, **numbers, "caveats": [*row.caveats]})
    return {
        "table": plan.table.name,
        "source": plan.table.source,
        "title": plan.table.title,
        "data": data,
        "seeds": plan.seeds,
        "changes": [*plan.changes],
        "spread": {"ours": OUR_SPREAD, "published": plan.table.spread},
        "inflated": reproduction.inflated,
        "not_compared": reproduction.untrained,
        "notes": [*plan.notes, *reproduction.notes],
        "caveats": [*plan.table.caveats],
        "failed": reproduction.failed,
        "files": [*reproduction.arrays.values()],
        "rows": rows,
    }


def find_axis_value(plan: ReproductionPlan, data: str, row: PublishedRow) -> Any:
    """Return the value of the axis in the settings that were run; None without an axis."""
    if not plan.table.vary:
        return None
    value: Any = plan.settings[data][row.name]
    for key in next(iter(plan.table.vary)).split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _format_axis_value(reproduction: Reproduction, row: PublishedRow) -> str:
    """The axis value of the paper, after the one that was run where they differ."""
    value = find_axis_value(reproduction.plan, reproduction.data, row)
    return str(row.x) if value is None or value == row.x else f"{value} for {row.x}"


def _format_caption(reproduction: Reproduction) -> str:
    plan, data = reproduction.plan, reproduction.data
    scope = "" if data == TOY else f", {data}"
    used = next(iter(plan.settings[data].values())).get("data", {}).get("name", data)
    scope += "" if used == data else f" (here on {used})"
    inflated = ", INFLATED: steps chosen on the test classes" if reproduction.inflated else ""
    changes = f", CHANGED by --set: {', '.join(plan.changes)}" if plan.changes else ""
    return f"{plan.table.name}: {plan.table.title}{scope} ({plan.table.source}){inflated}{changes}"


def _assemble_entries(reproduction: Reproduction) -> dict[str, dict[str, TableEntry]]:
    results = {
        row: {_metric_last(column): by_seed for column, by_seed in values.items()}
        for row, values in reproduction.ours.items()
    }
    return dict(assemble_rows(results, untrained=[*reproduction.untrained]))


def _metric_last(column: str) -> str:
    """The name of a column with the metric last, as tables expect it: "concatenated map@r"."""
    for group in COLUMN_GROUPS:
        if column.endswith(group):
            return f"{group.strip()} {column.removesuffix(group)}"
    return column


def _is_percent(column: str) -> bool:
    return parse_metric(column) is not None


def _format_entry(entry: TableEntry | None, column: str, mark: str) -> str:
    if entry is None or entry.interval is None:
        return "-"
    text = _format_number(entry.interval.mean, column)
    if not math.isnan(entry.interval.half_width):
        text += f" ± {_format_number(entry.interval.half_width, column)}"
    return f"{mark}{text}{mark}" if entry.bold else text


def _format_number(value: float, column: str) -> str:
    return f"{100 * value:.1f}" if _is_percent(column) else f"{value:.4g}"


def list_footnotes(reproduction: Reproduction) -> list[str]:
    """List the notes on the whole table."""
    return [
        *_explain_spreads(reproduction),
        *(_describe_search(row, search) for row, search in reproduction.searches.items()),
        *reproduction.notes,
        *(f"not compared: {name}: {reason}" for name, reason in reproduction.untrained.items()),
        *(["published as a figure, whose numbers are unreadable"] if reproduction.plan.table.kind == "space" else []),
        *(f"written: {path}" for path in reproduction.arrays.values()),
        *(f"failed: {name}: {error}" for name, error in reproduction.failed.items()),
    ]


def _explain_spreads(reproduction: Reproduction) -> list[str]:
    """Meaning of our plus-minus signs and of the published ones, which are different."""
    table, seeds = reproduction.plan.table, len(reproduction.plan.seeds)
    lines = []
    if table.kind not in (TOY, "runtime"):
        intervals = f"± of ours: {OUR_SPREAD} over {seeds} repeats"
        lines.append(intervals if seeds > 1 else "one repeat, so no intervals (--seeds)")
    if table.spread is not None:
        meaning = (
            f"a {table.spread} over the paper's runs" if table.spread != "not stated" else "the paper does not say"
        )
        lines.append(f"± of published numbers: {meaning}; not to be compared with an interval")
    return lines


def _describe_search(row: str, search: RowSearch) -> str:
    settings = ", ".join(f"{key} = {_format_setting(value)}" for key, value in search.values.items()) or "none"
    return f"{row}: chosen by a search of {search.completed} completed trials of {search.trials}: {settings}"


def _format_setting(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _to_plain(entry: TableEntry | None) -> dict[str, Any] | None:
    if entry is None or entry.interval is None:
        return None
    interval = entry.interval
    half_width = None if math.isnan(interval.half_width) else interval.half_width
    return {"mean": interval.mean, "half_width": half_width, "count": interval.count}
