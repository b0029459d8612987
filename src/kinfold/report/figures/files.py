"""The figures of a report as PNG and SVG files for papers, and its tables as Markdown and LaTeX."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinfold.experiments.statistics import Interval
from kinfold.experiments.tables import (
    Entry,
    Rows,
    Style,
    difference_unit,
    escape_latex,
    escape_markdown,
    format_difference,
    format_latex,
    format_markdown,
    format_probability,
    render,
)
from kinfold.files.atomic import write_atomic, write_text
from kinfold.report.figures.charts import Look, image, lines, new_figure, plain, style
from kinfold.report.figures.space_figures import Tiles, confused_figure, histogram_figure, map_figure, queries_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REACHED = "recall@1"
STYLES: dict[str, Style] = {"md": "markdown", "tex": "latex"}


def write_figures(content: dict[str, Any], folder: Path | str) -> list[Path]:
    """Write all figures (NAME.png with 200 dpi, NAME.svg) and tables (NAME.md, NAME.tex) of what `collect` gave."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    names = _Names()
    with style():
        for title, figure in figures(content):
            name = names.new(title)
            for kind in ("png", "svg"):
                written.append(folder / f"{name}.{kind}")
                _write(written[-1], image(figure, kind))
    for title, texts in tables(content):
        name = names.new(title)
        for kind, text in texts.items():
            written.append(folder / f"{name}.{kind}")
            write_text(written[-1], text + "\n")
    return written


def _write(path: Path, content: bytes) -> None:
    write_atomic(path, lambda file: file.write(content))


def figures(content: dict[str, Any]) -> "Iterator[tuple[str, Figure]]":
    """Every figure with the name of its file."""
    for chart in content["training"]:
        series = [{**one, "y": one["mean"]} for one in chart["series"]]
        label = f"{chart['title']}, log scale" if chart["log_y"] else chart["title"]
        yield (
            f"training {chart['title']}",
            lines("", chart["x"], label, series, log_y=chart["log_y"], shares=chart["share"], whole_x=True),
        )
    for space in content["spaces"]:
        name = _named(space)
        if space["map"] is not None:
            yield f"map {name}", map_figure(space)
        for which in ("best", "worst"):
            if space[which] and content["thumbnails"]:
                yield f"{which} queries {name}", queries_figure(space, which, Tiles(content["thumbnails"]))
        if space["confused"]:
            yield f"confused {name}", confused_figure(space)
        if space["histogram"]:
            yield f"similarities {name}", histogram_figure(space)
    for data in dict.fromkeys(space["data"] for space in content["spaces"]):
        own = [space for space in content["spaces"] if space["data"] == data]
        yield from _curves(data, own)
        yield from _spectra(data, own)
    yield from _diagnostics(content["diagnostics"])
    for one in content["weights"]:
        yield f"pair weights {one['name']}", _weights(one)


def tables(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Every table with the name of its files, by their endings."""
    for table in content["tables"]:
        columns = [column["key"] for column in table["columns"]]
        rows = _rows(table)
        yield (
            f"table {table['caption']}",
            {
                kind: _with_notes(
                    render(rows, columns, style, table["caption"], gains=table.get("gains", [])), table["notes"], kind
                )
                for kind, style in STYLES.items()
            },
        )
        if table["comparisons"]:
            yield f"comparisons {table['caption']}", _comparisons(table)


def _rows(table: dict[str, Any]) -> Rows:
    rows: Rows = []
    for row in table["rows"]:
        entries = {}
        for key, cell in row["cells"].items():
            half = math.nan if cell["half_width"] is None else cell["half_width"]
            found = None if cell["mean"] is None else Interval(cell["mean"], half, cell["count"])
            note = cell["note"] or ("quoted" if row["quoted"] else "")
            printed = cell["published"] if isinstance(cell["published"], int | float) else None
            if printed is not None:
                printed = cell.get("printed") or printed  # with the digits of the paper
            if isinstance(cell["published"], str):
                note = f"{note}; published: {cell['published']}".removeprefix("; ")
            entries[key] = Entry(found, printed, cell["bold"], note, *_start_and_gain(cell))
        quoted = f" (quoted from {row['quoted']})" if row["quoted"] else ""
        rows.append((row["method"] + quoted, entries))
    return rows


def _start_and_gain(cell: dict[str, Any]) -> tuple[Interval | None, Interval | None]:
    if cell.get("start") is None or cell.get("gain") is None:
        return None, None
    half = math.nan if cell["gain_half_width"] is None else cell["gain_half_width"]
    return Interval(cell["start"], math.nan, cell["count"]), Interval(cell["gain"], half, cell["count"])


def _with_notes(text: str, notes: list[str], kind: str) -> str:
    if kind == "md":
        return "\n\n".join([text, *(escape_markdown(note) for note in notes)])
    return "\n".join([*(f"% {' '.join(note.split())}" for note in notes), text])


def _comparisons(table: dict[str, Any]) -> dict[str, str]:
    metric = table["comparisons"][0]["column"]
    head = ["difference", f"{metric}{difference_unit(metric)}", "p", "p, Holm"]
    body = []
    for row in table["comparisons"]:
        known = {
            key: math.nan if row[key] is None else row[key] for key in ("difference", "half_width", "p", "adjusted")
        }
        difference = format_difference(metric, known["difference"], known["half_width"])
        p = [format_probability(known[key]) for key in ("p", "adjusted")]
        body.append([f"{row['first']} - {row['second']}", difference, p[0], p[1] + " *" * row["told_apart"]])
    meaning = "*: told" if any(row["told_apart"] for row in table["comparisons"]) else "no two are told"
    note = f"{meaning} apart at 5 % after Holm's correction over all pairs of this table"
    caption = f"{table['caption']}: paired differences"
    markdown = [head, *([escape_markdown(names), *rest] for names, *rest in body)]  # numbers stand as they are
    latex = [[escape_latex(cell) for cell in row] for row in [head, *body]]
    return {
        "md": format_markdown(markdown, [escape_markdown(note)], escape_markdown(caption)),
        "tex": format_latex(latex, [escape_latex(note)], escape_latex(caption)),
    }


def _curves(data: str, spaces: list[dict[str, Any]]) -> "Iterator[tuple[str, Figure]]":
    """One figure for each kind of curve, a line for each space."""
    kinds = {curve["title"]: curve for space in spaces for curve in space["curves"]}
    for title, about in kinds.items():
        series = [
            {"name": space["name"], "x": curve["x"], "y": curve["y"]}
            for space in spaces
            for curve in space["curves"]
            if curve["title"] == title
        ]
        split = spaces[0]["split"]
        yield (
            f"{title} {data}",
            lines(f"{data}, {split} classes", about["x_label"], about["y_label"], series, about["log_x"], shares=True),
        )


def _spectra(data: str, spaces: list[dict[str, Any]]) -> "Iterator[tuple[str, Figure]]":
    for key, title in (("whole", "singular values"), ("classes", "singular values within a class")):
        series = []
        for space in spaces:
            values = space["spectrum"][key]
            series.append({"name": space["name"], "x": [*range(1, len(values) + 1)], "y": values})
        about = f"{data}, {spaces[0]['split']} classes"
        yield f"spectrum {key} {data}", lines(about, "number", title, series, whole_x=True)


def _diagnostics(found: dict[str, Any]) -> "Iterator[tuple[str, Figure]]":
    for column in found["columns"]:
        points = [p for p in found["points"] if p["values"].get(column) is not None and p["values"].get(REACHED)]
        if column == REACHED or not points:
            continue
        many = len(points) > 6
        figure, axes = new_figure((7.4, 3.6) if many else (5.2, 3.6))
        for place, point in enumerate(points):
            look, values = Look.number(place), point["values"]
            dark: dict[str, Any] = {
                "color": look.colour,
                "marker": look.marker,
                "s": 42,
                "label": plain(point["method"]),
            }
            axes.scatter([values[column]], [values[REACHED]], **dark)
        axes.set_xlabel(f"{column} of the training space")
        axes.set_ylabel(f"test {REACHED}")
        axes.legend(**({"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if many else {}))
        yield f"{column} against {REACHED}", figure


def _weights(one: dict[str, Any]) -> "Figure":
    series = [
        {"name": name, "x": one["similarity"], "y": one[key]} for name, key in (("kin", "kin"), ("others", "others"))
    ]
    return lines(one["name"], "similarity", "dL/dS, mean of the pairs", series)


def _named(space: dict[str, Any]) -> str:
    return f"{space['data']} {space['name']}"


class _Names:
    """File names that are plain and differ."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def new(self, title: str) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", title.replace("@", " at ").lower()).strip("-")[:100] or "figure"
        number, found = 1, name
        while found in self._used:
            number += 1
            found = f"{name}-{number}"
        self._used.add(found)
        return found
