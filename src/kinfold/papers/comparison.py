"""Ours beside the published numbers, with what has to be known to compare them."""

import math
from dataclasses import asdict
from typing import Any

from kinfold.experiments.statistics import Interval
from kinfold.experiments.tables import BOLD, Entry, Style, assemble_rows, escape_markdown, format_markdown, format_text
from kinfold.papers.outline import list_caveats, printed, published
from kinfold.papers.plan import Plan
from kinfold.papers.published import PublishedRow
from kinfold.papers.reading import COLUMN_GROUPS, TOY, measured
from kinfold.papers.reproduce import Reproduction, SearchResult

OUR_SPREAD = "half width of the 95 % interval of the mean"


def build_table(found: Reproduction, style: Style = "text") -> str:
    """One data set of a table: a line for each row that was run and for each that the paper quotes."""
    plan, data = found.plan, found.data
    entries = dict(assemble_rows(_renamed(found), untrained=[*found.untrained]))
    mark = "**" if style == "markdown" else "*"
    axis = [*plan.table.vary][:1]
    heading = ["method", *axis]
    rows = [row for row in plan.table.rows if row in plan.rows or (row in plan.quoted and data in row.published)]
    beside = {column for row in rows for column in row.published.get(data, {})}
    for column in found.columns:
        heading += [f"{_column(column)}{', %' if _percent(column) else ''}", *["published"] * (column in beside)]
    body = [heading]
    for row in rows:
        quoted = "" if row.quoted is None else f" (quoted from {row.quoted})"
        cells = [f"{row.label}{quoted}", *([_place(found, row)] if axis else [])]
        for column in found.columns:
            cells.append("" if quoted else _ours(entries.get(row.name, {}).get(_column(column)), column, mark))
            if column in beside:
                cells.append(printed(row, data).get(column, ""))
        body.append(cells)
    where = "" if data == TOY else f", {data}"
    used = next(iter(plan.settings[data].values())).get("data", {}).get("name", data)
    where += "" if used == data else f" (here on {used})"
    inflated = ", INFLATED: steps chosen on the test classes" if found.inflated else ""
    changes = f", CHANGED by --set: {', '.join(plan.changes)}" if plan.changes else ""
    caption = f"{plan.table.name}: {plan.table.title}{where} ({plan.table.source}){inflated}{changes}"
    told = "**Bold**" if style == "markdown" else "between asterisks"
    best = [BOLD.format(told)] * any(each.bold for own in entries.values() for each in own.values())
    if style == "markdown":
        # numbers stand as they are
        lines = [heading, *([escape_markdown(name), *rest] for name, *rest in body[1:])]
        return format_markdown(lines, [*best, *map(escape_markdown, _footnotes(found))], escape_markdown(caption))
    return format_text(body, [*best, *_footnotes(found)], caption)


def format_report(found: Reproduction, style: Style = "text") -> str:
    """The table, what differs from the paper, and the caveats of table and rows."""
    bullet = "- "
    lines = [build_table(found, style), ""]
    lines += [bullet + note for note in found.plan.notes]
    lines += ["", "caveats:", ""] if style == "markdown" else ["caveats:"]
    lines += [bullet + caveat for caveat in list_caveats(found.plan)]
    return "\n".join(lines)


def to_dictionary(found: Reproduction) -> dict[str, Any]:
    """The same for programs: fractions as they are measured, published numbers as they are printed."""
    plan, data = found.plan, found.data
    entries = dict(assemble_rows(_renamed(found), untrained=[*found.untrained]))
    rows = []
    for row in (*plan.rows, *plan.quoted):
        own = entries.get(row.name, {})
        ours = {column: _plain(own.get(_column(column))) for column in found.columns if row.quoted is None}
        about = {"row": row.name, "label": row.label, "quoted": row.quoted, "x": row.x}
        if plan.table.vary and row.quoted is None:
            about["ran_at"] = ran_at(plan, data, row)
        if row.quoted is None:
            about["settings"] = plan.settings[data][row.name]
        if row.name in found.searches:
            about["search"] = asdict(found.searches[row.name])
        numbers = {"ours": ours, "published": published(row, data), "printed": printed(row, data)}
        rows.append({**about, **numbers, "caveats": [*row.caveats]})
    return {
        "table": plan.table.name,
        "source": plan.table.source,
        "title": plan.table.title,
        "data": data,
        "seeds": plan.seeds,
        "changes": [*plan.changes],
        "spread": {"ours": OUR_SPREAD, "published": plan.table.spread},
        "inflated": found.inflated,
        "not_compared": found.untrained,
        "notes": [*plan.notes, *found.notes],
        "caveats": [*plan.table.caveats],
        "failed": found.failed,
        "files": [*found.files],
        "rows": rows,
    }


def _place(found: Reproduction, row: PublishedRow) -> str:
    """Where on the axis a row was run, and where the paper has it if that is elsewhere."""
    ran = ran_at(found.plan, found.data, row)
    return str(row.x) if ran is None or ran == row.x else f"{ran} for {row.x}"


def ran_at(plan: Plan, data: str, row: PublishedRow) -> Any:
    """The value of the axis in the settings that were run; None without an axis."""
    if not plan.table.vary:
        return None
    value: Any = plan.settings[data][row.name]
    for key in next(iter(plan.table.vary)).split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _renamed(found: Reproduction) -> dict[str, dict[str, dict[int, float]]]:
    return {row: {_column(name): each for name, each in values.items()} for row, values in found.ours.items()}


def _column(name: str) -> str:
    """With the metric last, as tables want it: "concatenated map@r"."""
    for group in COLUMN_GROUPS:
        if name.endswith(group):
            return f"{group.strip()} {name.removesuffix(group)}"
    return name


def _percent(column: str) -> bool:
    return measured(column) is not None


def _ours(entry: Entry | None, column: str, mark: str) -> str:
    if entry is None or entry.interval is None:
        return "-"
    told = entry.interval
    text = _number(told.mean, column)
    if not math.isnan(told.half_width):
        text += f" ± {_number(told.half_width, column)}"
    return f"{mark}{text}{mark}" if entry.bold else text


def _number(value: float, column: str) -> str:
    return f"{100 * value:.1f}" if _percent(column) else f"{value:.4g}"


def _footnotes(found: Reproduction) -> list[str]:
    """What is true of the whole table."""
    return [
        *_explain_spreads(found),
        *(_describe_search(row, search) for row, search in found.searches.items()),
        *found.notes,
        *(f"not compared: {name}: {why}" for name, why in found.untrained.items()),
        *(["published as a figure, whose numbers are unreadable"] if found.plan.table.kind == "space" else []),
        *(f"written: {path}" for path in found.files),
        *(f"failed: {name}: {why}" for name, why in found.failed.items()),
    ]


def _explain_spreads(found: Reproduction) -> list[str]:
    """What the plus-minus signs of both sides stand for, which is not the same thing."""
    table, seeds = found.plan.table, len(found.plan.seeds)
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


def _describe_search(row: str, search: SearchResult) -> str:
    values = ", ".join(f"{key} = {_setting(value)}" for key, value in search.values.items()) or "none"
    return f"{row}: chosen by a search of {search.completed} completed trials of {search.trials}: {values}"


def _setting(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(entry: Entry | None) -> dict[str, Any] | None:
    told: Interval | None = None if entry is None else entry.interval
    if told is None:
        return None
    half = None if math.isnan(told.half_width) else told.half_width
    return {"mean": told.mean, "half_width": half, "count": told.count}
