"""What a plan would run and what it needs, for people and for programs."""

from typing import Any

from kinfold.papers.plan import Plan
from kinfold.papers.published import PublishedNumber, PublishedRow
from kinfold.papers.reading import TOY


def describe_tables(plan: Plan) -> str:
    """A line for each row, then what it needs, what of that is missing, and what has to be known."""
    table = plan.table
    repeats = "" if table.kind == "runtime" else f", {_counted(len(plan.seeds), 'seed')}"
    where = f"{_counted(len(plan.rows), 'row')} on {', '.join(plan.settings)}"
    lines = [
        f"{table.name}: {table.title}",
        f"  {table.paper}, {table.source}",
        f"  {where}{repeats}; {_counted(plan.runs, 'training')}",
        *(f"  {entry['row']}: {_told(entry)}" for entry in describe_plan(plan)),
    ]
    needs = [line for rows in plan.needs.values() for each in rows.values() for line in each]
    for title, told in (
        ("needs", [*dict.fromkeys(needs)]),
        ("missing", [*plan.missing]),
        ("notes", [*plan.notes]),
        ("caveats", list_caveats(plan)),
    ):
        if told:
            lines += [f"  {title}:", *(f"    {line}" for line in told)]
    return "\n".join(lines)


def describe_plan(plan: Plan) -> list[dict[str, Any]]:
    """Every row of a plan, those that are quoted too, with where it comes from, its settings and what was published."""
    table = plan.table
    about = {
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
    found = []
    for row in table.rows:
        if row not in plan.rows and row not in plan.quoted:
            continue
        ran = {data: rows[row.name] for data, rows in plan.settings.items() if row.name in rows}
        found.append(
            {
                **about,
                "row": row.name,
                "label": row.label,
                "quoted": row.quoted,
                "x": row.x,
                "settings": ran,
                "published": {data: published(row, data) for data in row.published},
                "printed": {data: printed(row, data) for data in row.published},
                "needs": {data: plan.needs[data][row.name] for data in ran},
                "missing": [*plan.missing] if ran else [],
                "seeds": plan.seeds if ran else [],
                "trials": plan.trials if any(each.get("search") for each in ran.values()) else 0,
                "changes": [*plan.changes] if ran else [],
                "notes": [*plan.notes] if ran else [],
                "caveats": [*table.caveats, *row.caveats],
            }
        )
    return found


def list_caveats(plan: Plan) -> list[str]:
    """What the table says about itself and its rows; of a curve, each line once."""
    rows: tuple[PublishedRow, ...] = (*plan.rows, *plan.quoted)
    own = [f"{row.label}: {caveat}" for row in rows for caveat in row.caveats]
    return [*plan.table.caveats, *dict.fromkeys(own)]


def published(row: PublishedRow, data: str) -> dict[str, Any]:
    """metric -> number, [number, spread] or "unreadable", as in the file of the table."""
    return {metric: _as_given(cell) for metric, cell in row.published.get(data, {}).items()}


def printed(row: PublishedRow, data: str) -> dict[str, str]:
    """metric -> the number and its spread with the digits that the paper prints."""
    return {metric: str(cell) for metric, cell in row.published.get(data, {}).items()}


def _as_given(cell: PublishedNumber) -> Any:
    if cell.value is None:
        return str(cell)
    return cell.value if cell.spread is None else [cell.value, cell.spread]


def _told(entry: dict[str, Any]) -> str:
    """One row in a line: what it is made of and what it came to."""
    numbers = "; ".join(
        f"{data} {', '.join(f'{metric} {text}' for metric, text in cells.items())}"
        for data, cells in entry["printed"].items()
    )
    if entry["quoted"] is not None:
        return f"{entry['label']}, quoted from {entry['quoted']}, not run; published: {numbers}"
    settings: dict[str, Any] = next(iter(entry["settings"].values()))
    if TOY in settings:
        made = _options(settings[TOY])
    else:
        used = [kind for kind in ("loss", "miner", "sampler", "mixup") if kind in settings]
        made = "; ".join(f"{kind} {_options(settings[kind])}" for kind in used)
        length = settings.get("training", {})
        made += "".join(f"; {length[unit]} {unit}" for unit in ("steps", "epochs") if unit in length)
    return f"{entry['label']}: {made}; published: {numbers or 'none'}"


def _options(table: dict[str, Any]) -> str:
    return " ".join(str(value) if key == "name" else f"{key}={value}" for key, value in table.items())


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
