"""A plan as text and as plain data: what would run, and what it needs."""

from typing import Any

from kinfold.papers.plan import ReproductionPlan
from kinfold.papers.published import PublishedNumber, PublishedRow
from kinfold.papers.table_files import TOY


def format_plan(plan: ReproductionPlan) -> str:
    """Format a plan as text: a line for each row, then needs, missing files, notes and caveats."""
    table = plan.table
    repeats = "" if table.kind == "runtime" else f", {_count(len(plan.seeds), 'seed')}"
    scope = f"{_count(len(plan.rows), 'row')} on {', '.join(plan.settings)}"
    lines = [
        f"{table.name}: {table.title}",
        f"  {table.paper}, {table.source}",
        f"  {scope}{repeats}; {_count(plan.runs, 'training')}",
        *(f"  {entry['row']}: {_format_row(entry)}" for entry in list_planned_rows(plan)),
    ]
    needs = [line for rows in plan.needs.values() for each in rows.values() for line in each]
    for title, section in (
        ("needs", [*dict.fromkeys(needs)]),
        ("missing", [*plan.missing]),
        ("notes", [*plan.notes]),
        ("caveats", list_caveats(plan)),
    ):
        if section:
            lines += [f"  {title}:", *(f"    {line}" for line in section)]
    return "\n".join(lines)


def list_planned_rows(plan: ReproductionPlan) -> list[dict[str, Any]]:
    """List every row of a plan as plain data, also those that are numbers only: source, settings, published numbers."""
    table = plan.table
    table_fields = {
        "table": table.name,
        "paper": table.paper,
        "source": table.source,
        "title": table.title,
        "kind": table.kind,
        "protocol": table.protocol,
        "selection": table.selection,
        "runs": table.runs,
        "spread": table.spread,
    }
    entries = []
    for row in table.rows:
        if row not in plan.rows and row not in plan.not_run:
            continue
        settings = {data: rows[row.name] for data, rows in plan.settings.items() if row.name in rows}
        entries.append(
            {
                **table_fields,
                "row": row.name,
                "label": row.label,
                "quoted": row.quoted,
                "not_run": row.not_run,
                "x": row.x,
                "settings": settings,
                "published": {data: published_numbers(row, data) for data in row.published},
                "printed": {data: printed_numbers(row, data) for data in row.published},
                "needs": {data: plan.needs[data][row.name] for data in settings},
                "missing": [*plan.missing] if settings else [],
                "seeds": plan.seeds if settings else [],
                "trials": plan.trials if any(tables.get("search") for tables in settings.values()) else 0,
                "changes": [*plan.changes] if settings else [],
                "notes": [*plan.notes] if settings else [],
                "caveats": [*table.caveats, *row.caveats],
            }
        )
    return entries


def list_caveats(plan: ReproductionPlan) -> list[str]:
    """List the caveats of a table and its rows; those of a line of a curve once."""
    rows: tuple[PublishedRow, ...] = (*plan.rows, *plan.not_run)
    row_caveats = [f"{row.label}: {caveat}" for row in rows for caveat in row.caveats]
    return [*plan.table.caveats, *dict.fromkeys(row_caveats)]


def published_numbers(row: PublishedRow, data: str) -> dict[str, Any]:
    """Return metric -> number, [number, spread] or "unreadable", as in the file of the table."""
    return {metric: _to_plain(number) for metric, number in row.published.get(data, {}).items()}


def printed_numbers(row: PublishedRow, data: str) -> dict[str, str]:
    """Return metric -> number and spread, with the digits that the paper prints."""
    return {metric: str(number) for metric, number in row.published.get(data, {}).items()}


def _to_plain(number: PublishedNumber) -> Any:
    if number.value is None:
        return str(number)
    return number.value if number.spread is None else [number.value, number.spread]


def _format_row(entry: dict[str, Any]) -> str:
    """One row in a line: its settings and its published numbers."""
    numbers = "; ".join(
        f"{data} {', '.join(f'{metric} {text}' for metric, text in cells.items())}"
        for data, cells in entry["printed"].items()
    )
    label = f"{entry['label']}{_describe_source(entry['quoted'])}"
    if entry["not_run"] is not None:
        return f"{label}, not run: {entry['not_run']}; published: {numbers}"
    settings: dict[str, Any] = next(iter(entry["settings"].values()))
    if TOY in settings:
        text = _format_options(settings[TOY])
    else:
        kinds = [kind for kind in ("loss", "miner", "sampler", "mixup") if kind in settings]
        text = "; ".join(f"{kind} {_format_options(settings[kind])}" for kind in kinds)
        length = settings.get("training", {})
        text += "".join(f"; {length[unit]} {unit}" for unit in ("steps", "epochs") if unit in length)
    return f"{label}: {text}; published: {numbers or 'none'}"


def _describe_source(quoted: str | dict[str, str] | None) -> str:
    if isinstance(quoted, dict):
        return "".join(f", on {data} quoted from {source}" for data, source in quoted.items())
    return "" if quoted is None else f", quoted from {quoted}"


def _format_options(table: dict[str, Any]) -> str:
    return " ".join(str(value) if key == "name" else f"{key}={value}" for key, value in table.items())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
