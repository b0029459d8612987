"""Figures of embedding spaces: curves of all rows, metrics along training, spectra, and maps with pictures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kinfold.data.items import Array
from kinfold.papers.published import PublishedRow
from kinfold.report.figures.style import SeriesStyle, add_legend, choose_size, create_figure, escape_text
from kinfold.report.reproduction.selection import Look, get_line, label_column, scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrays = Mapping[str, Array]
Looks = Mapping[str, Look]
ZOOM_BORDER = 0.08  # around a magnified region, as a share of its side
POINT_AREA = 10_000  # of all points of a map together, in square points
MAX_POINTS = 2_000  # of a curve, which are far more than a figure can show


def draw_curves(
    rows: Sequence[PublishedRow],
    arrays: Mapping[str, Arrays],
    looks: Looks,
    x: str,
    y: str,
    labels: tuple[str, str],
) -> "Figure":
    """Draw a curve of every row.

    Args:
        rows: The rows.
        arrays: Row -> its arrays.
        looks: Row -> how it looks.
        x, y: Names of the arrays.
        labels: Texts at the axes.
    """
    figure, axes = create_figure(choose_size(max(7, len(rows))))
    for row in rows:
        if row.name not in arrays or y not in arrays[row.name]:
            continue
        look = looks[get_line(row)]
        values = arrays[row.name]
        places = values[x] if x in values else 1 + np.arange(len(values[y]))
        chosen = np.unique(np.linspace(0, len(places) - 1, min(len(places), MAX_POINTS)).round().astype(np.int64))
        axes.plot(
            places[chosen],
            values[y][chosen] * scale_of(y),
            color=look.style.color,
            linestyle=look.style.dash,
            marker=look.style.marker,
            markerfacecolor=look.face,
            markevery=max(1, len(chosen) // 8),
            markersize=4,
            linewidth=1.3,
            label=escape_text(row.label),
        )
    axes.set_xlabel(escape_text(labels[0]))
    axes.set_ylabel(escape_text(labels[1]))
    add_legend(axes, max(7, len(rows)))
    return figure


def draw_training(
    rows: Sequence[PublishedRow], arrays: Mapping[str, Arrays], looks: Looks, metric: str
) -> "Figure | None":
    """Draw a metric along training; None if no run measured it."""
    split = next((str(each["split"]) for each in arrays.values() if metric in each and "split" in each), None)
    if split is None:
        return None
    return draw_curves(rows, arrays, looks, "steps", metric, ("steps", f"{label_column(metric)}, {split} classes"))


def draw_picture_map(row: PublishedRow, arrays: Arrays) -> "Figure":
    """Draw the map of a row: its items as framed pictures or as points, and its dense regions magnified."""
    from matplotlib.figure import Figure as NewFigure

    plane, labels = arrays["plane"], arrays["labels"]
    zooms = arrays["zooms"] if "pictures" in arrays else np.zeros((0, 4))
    figure = NewFigure(figsize=(11.0 if len(zooms) else 7.6, 7.6), layout="constrained")
    grid = figure.add_gridspec(max(1, len(zooms)), 4)
    main = figure.add_subplot(grid[:, :3] if len(zooms) else grid[:, :])
    colors = _color_classes(labels)
    size = float(np.clip(POINT_AREA / len(plane), 3, 25))
    main.scatter(plane[:, 0], plane[:, 1], s=size, c=colors, linewidths=0, rasterized=True)
    if "pictures" in arrays:
        _add_pictures(main, arrays, colors, np.arange(len(arrays["picture_items"])), 0.34)
    _frame(main, escape_text(row.label))
    for number, region in enumerate(zooms):
        left, bottom, right, top = region
        # over the pictures, which may cover a region
        corners = [left, right, right, left, left], [bottom, bottom, top, top, bottom]
        main.plot(*corners, color="black", linewidth=1.2, zorder=4)
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        main.text(left, top, str(number + 1), fontsize=11, weight="bold", va="bottom", bbox=ground, zorder=5)
        axes = figure.add_subplot(grid[number, 3])
        border = ZOOM_BORDER * (right - left)  # pictures are centered at items, also at those on the edge
        axes.set_xlim(left - border, right + border)
        axes.set_ylim(bottom - border, top + border)
        items = plane[arrays["picture_items"]]
        inside = np.flatnonzero(((items >= region[:2]) & (items <= region[2:])).all(axis=1))
        _add_pictures(axes, arrays, colors, inside, 0.62)
        _frame(axes, f"region {number + 1}")
        axes.spines[:].set_visible(True)
    return figure


def _add_pictures(axes: "Axes", arrays: Arrays, colors: Array, chosen: Array, zoom: float) -> None:
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    for index in chosen:
        item = int(arrays["picture_items"][index])
        image = OffsetImage(arrays["pictures"][index], zoom=zoom)
        x, y = map(float, arrays["plane"][item])
        frame = {"edgecolor": colors[item], "linewidth": 0.9}
        axes.add_artist(AnnotationBbox(image, (x, y), pad=0.08, bboxprops=frame))


def _color_classes(labels: Array) -> Array:
    """A color for each item; the colors repeat, neighbors on the map rarely have the same."""
    _, codes = np.unique(labels, return_inverse=True)
    colors = [SeriesStyle.create(int(code)).color for code in range(8)]
    return np.array(colors)[codes % len(colors)]


def _frame(axes: "Axes", title: str) -> None:
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(title, loc="left", fontsize=9)


def load_arrays(paths: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Load the arrays of every row; files hold numbers only."""
    loaded = {}
    for row, path in paths.items():
        with np.load(path, allow_pickle=False) as file:
            loaded[row] = {name: file[name] for name in file.files}
    return loaded
