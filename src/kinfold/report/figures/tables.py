"""The result tables of a report in Markdown and LaTeX."""

import math
from collections.abc import Iterator
from typing import Any

from kinfold.experiments.statistics import Interval
from kinfold.experiments.table_styles import Style, escape_latex, escape_markdown, format_latex, format_markdown
from kinfold.experiments.tables import (
    Rows,
    TableEntry,
    difference_unit,
    format_difference,
    format_probability,
    render_table,
)
from kinfold.files.documents import null_to_nan

STYLES: dict[str, Style] = {"md": "markdown", "tex": "latex"}


def format_tables(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every table with its name, as file ending -> text."""
    for table in content["tables"]:
        columns = [column["key"] for column in table["columns"]]
        rows, caption, gains = _create_rows(table), table["caption"], table.get("gains", [])
        texts = {kind: render_table(rows, columns, style, caption, gains=gains) for kind, style in STYLES.items()}
        yield f"table {caption}", {kind: _add_notes(text, table["notes"], kind) for kind, text in texts.items()}
        if table["comparisons"]:
            yield f"comparisons {caption}", _format_comparisons(table)


def _create_rows(table: dict[str, Any]) -> Rows:
    rows: Rows = []
    for row in table["rows"]:
        source = f" (quoted from {row['quoted']})" if row["quoted"] else ""
        rows.append((row["method"] + source, {key: _create_entry(cell, row) for key, cell in row["cells"].items()}))
    return rows


def _create_entry(cell: dict[str, Any], row: dict[str, Any]) -> TableEntry:
    count = cell["count"]
    interval = None if cell["mean"] is None else Interval(cell["mean"], null_to_nan(cell["half_width"]), count)
    note = cell["note"] or ("quoted" if row["quoted"] else "")
    published = cell["published"]
    if isinstance(published, str):
        note = f"{note}; published: {published}".removeprefix("; ")
        published = None
    elif published is not None:
        published = cell.get("printed") or published  # with the digits of the paper
    start = gain = None
    if cell.get("start") is not None and cell.get("gain") is not None:
        start = Interval(cell["start"], math.nan, count)
        gain = Interval(cell["gain"], null_to_nan(cell["gain_half_width"]), count)
    return TableEntry(interval, published, cell["bold"], note, start, gain)


def _add_notes(text: str, notes: list[str], kind: str) -> str:
    if kind == "md":
        return "\n\n".join([text, *(escape_markdown(note) for note in notes)])
    return "\n".join([*(f"% {' '.join(note.split())}" for note in notes), text])


def _format_comparisons(table: dict[str, Any]) -> dict[str, str]:
    metric = table["comparisons"][0]["column"]
    head = ["difference", f"{metric}{difference_unit(metric)}", "p", "p, Holm"]
    body = []
    for row in table["comparisons"]:
        difference = format_difference(metric, null_to_nan(row["difference"]), null_to_nan(row["half_width"]))
        p, adjusted = (format_probability(null_to_nan(row[key])) for key in ("p", "adjusted"))
        body.append([f"{row['first']} - {row['second']}", difference, p, adjusted + " *" * row["significant"]])
    any_significant = any(row["significant"] for row in table["comparisons"])
    meaning = "*: significant" if any_significant else "no difference is significant"
    note = f"{meaning} at 5 % after Holm's correction over all pairs of this table"
    caption = f"{table['caption']}: paired differences"
    markdown = [head, *([escape_markdown(names), *rest] for names, *rest in body)]  # numbers need no escapes
    latex = [[escape_latex(cell) for cell in row] for row in [head, *body]]
    return {
        "md": format_markdown(markdown, [escape_markdown(note)], escape_markdown(caption)),
        "tex": format_latex(latex, [escape_latex(note)], escape_latex(caption)),
    }
