"""The figures of a published table, drawn with our numbers, as PNG and SVG files and on a page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kinfold.files.atomic import write_atomic
from kinfold.papers.figure_data import MAPS
from kinfold.papers.reproduce import RHO, Reproduction
from kinfold.papers.table_files import TOY
from kinfold.report.figures.files import FileNames
from kinfold.report.figures.style import render_figure, use_style
from kinfold.report.reproduction import numbers, spaces
from kinfold.report.reproduction.page import write_page
from kinfold.report.reproduction.selection import create_looks, select_rows
from kinfold.report.reproduction.toys import draw_toys

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "published.html"
CURVES = (  # title, which starts with the column of the table without "curve"; arrays; texts at the axes
    ("precision-recall, all pairs", "pair_recall", "pair_precision", ("recall", "precision")),
    ("precision-recall, by query", "query_recall", "query_precision", ("recall", "precision")),
    ("roc, all pairs", "false_positives", "true_positives", ("false positive rate", "true positive rate")),
    ("roc, by query", "far", "tar", ("false accept rate", "true accept rate")),
)


def write_reproduction(reproduction: Reproduction, folder: Path, methods: Sequence[str] = ()) -> list[Path]:
    """Write the figures of one data set (NAME.png with 200 dpi, NAME.svg), and a page that holds them all.

    Args:
        reproduction: Our numbers.
        folder: Where `published.html` is written, and the folder `figures`.
        methods: Rows or lines that are drawn; all where empty.

    Returns:
        The files, the page first.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: A method is unknown.
    """
    target = folder / "figures"
    target.mkdir(parents=True, exist_ok=True)
    names, paths, images = FileNames(), [], {}
    with use_style():
        for title, figure in draw_figures(reproduction, methods):
            name = names.create(title)
            for kind in ("png", "svg"):
                paths.append(target / f"{name}.{kind}")
                data = render_figure(figure, kind)
                write_atomic(paths[-1], lambda file, data=data: file.write(data))  # type: ignore[misc]
                if kind == "png":
                    images[title] = data
    return [write_page(reproduction, images, folder / PAGE), *paths]


def draw_figures(reproduction: Reproduction, methods: Sequence[str] = ()) -> "Iterator[tuple[str, Figure]]":
    """Yield the figures of a table with their titles; what is not measured has no figure.

    Args:
        reproduction: Our numbers.
        methods: Rows or lines that are drawn; all where empty.
    """
    table, rows = reproduction.plan.table, select_rows(reproduction, methods)
    looks = create_looks(rows)
    if table.kind == TOY:
        yield "toy problem", draw_toys(rows, spaces.load_arrays(reproduction.arrays))
    elif table.kind == "runtime":
        yield "running time", numbers.draw_bars(reproduction, rows, looks)
    elif table.kind == "space":
        yield from _draw_space(reproduction, methods)
    else:
        for column in reproduction.columns:
            if table.kind == "curve":
                yield column, numbers.draw_lines(reproduction, rows, looks, column)
                continue
            yield column, numbers.draw_rows(reproduction, rows, looks, column)
            if any(row.without in {other.name for other in rows} for row in rows):
                yield f"{column} with and without", numbers.draw_pairs(reproduction, rows, column)


def _draw_space(reproduction: Reproduction, methods: Sequence[str]) -> "Iterator[tuple[str, Figure]]":
    rows = [row for row in select_rows(reproduction, methods) if row.name in reproduction.arrays]
    if not rows:
        return
    wanted, looks = {*reproduction.plan.table.metrics}, create_looks(rows)
    arrays = spaces.load_arrays({row.name: reproduction.arrays[row.name] for row in rows})
    first = reproduction.columns[0]
    if any(column.startswith(RHO) for column in wanted):
        yield f"{RHO} against {first}", numbers.draw_decay(reproduction, rows, looks, first)
    if "class spectrum" in wanted:
        labels = ("singular value of a class", "mean over the training classes")
        yield "class spectra", spaces.draw_curves(rows, arrays, looks, "rank", "class_spectrum", labels)
        labels = ("singular value", "all training items")
        yield "spectra", spaces.draw_curves(rows, arrays, looks, "rank", "spectrum", labels)
    if wanted & {*MAPS}:
        for row in rows:
            if "plane" in arrays[row.name]:
                yield f"map {row.name}", spaces.draw_picture_map(row, arrays[row.name])
    for title, x, y, texts in CURVES:
        if any(title.startswith(column.removesuffix(" curve")) for column in wanted):
            yield title, spaces.draw_curves(rows, arrays, looks, x, y, texts)
    if any(column.endswith("along training") for column in wanted):
        figure = spaces.draw_training(rows, arrays, looks, first)
        if figure is not None:
            yield f"{first} along training", figure
