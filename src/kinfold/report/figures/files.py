"""Writes the figures of a report as PNG and SVG files, and its tables as Markdown and LaTeX."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinfold.files.atomic import write_atomic, write_text
from kinfold.report.charts import Chart
from kinfold.report.figures.charts import draw_chart
from kinfold.report.figures.space_figures import SpriteSheets, draw_confusions, draw_map, draw_queries
from kinfold.report.figures.style import render_figure, use_style
from kinfold.report.figures.tables import format_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figures(content: dict[str, Any], folder: Path | str) -> list[Path]:
    """Write all figures (NAME.png with 200 dpi, NAME.svg) and tables (NAME.md, NAME.tex) of a report.

    Args:
        content: Result of `collect_content`.
        folder: Where to write; it is created if it does not exist.

    Returns:
        The files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    names = FileNames()
    with use_style():
        for title, figure in draw_figures(content):
            name = names.create(title)
            for kind in ("png", "svg"):
                paths.append(folder / f"{name}.{kind}")
                _write_bytes(paths[-1], render_figure(figure, kind))
    for title, texts in format_tables(content):
        name = names.create(title)
        for kind, text in texts.items():
            paths.append(folder / f"{name}.{kind}")
            write_text(paths[-1], text + "\n")
    return paths


def draw_figures(content: dict[str, Any]) -> "Iterator[tuple[str, Figure]]":
    """Yield every figure with its name."""
    for charts in content["charts"].values():
        for chart in map(Chart.from_dict, charts):
            yield chart.name, draw_chart(chart)
    for space in content["spaces"]:
        name = f"{space['data']} {space['name']}"
        if space["map"] is not None:
            yield f"map {name}", draw_map(space)
        for which in ("best", "worst"):
            if space[which] and content["thumbnails"]:
                yield f"{which} queries {name}", draw_queries(space, which, SpriteSheets(content["thumbnails"]))
        if space["confused"]:
            yield f"confused {name}", draw_confusions(space)


def _write_bytes(path: Path, data: bytes) -> None:
    write_atomic(path, lambda file: file.write(data))


class FileNames:
    """Creates file names of plain characters, each once."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def create(self, title: str) -> str:
        stem = re.sub(r"[^a-z0-9]+", "-", title.replace("@", " at ").lower()).strip("-")[:100] or "figure"
        number, name = 1, stem
        while name in self._used:
            number += 1
            name = f"{stem}-{number}"
        self._used.add(name)
        return name
