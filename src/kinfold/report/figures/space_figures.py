"""Figures of one embedding space that are no charts: its map, its best and worst queries, its confused classes."""

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from kinfold.data.image_reading import flatten, open_image
from kinfold.data.items import Array
from kinfold.report.content.json_values import decode_array
from kinfold.report.figures.style import SeriesStyle, create_figure, escape_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_CLASSES = 10  # of a map, with a marker each


def draw_map(space: dict[str, Any]) -> "Figure":
    """Draw all points in gray, and the largest classes with a marker each."""
    x, y = (decode_array(space["map"][axis]) for axis in ("x", "y"))
    labels = decode_array(space["labels"]).astype(np.int64)
    figure, axes = create_figure((6.4, 4.6))
    sizes = np.bincount(labels, minlength=len(space["classes"]))
    largest = [label for label in np.argsort(-sizes, kind="stable")[:MAX_CLASSES].tolist() if sizes[label]]
    rest = ~np.isin(labels, largest)
    if rest.any():
        name = f"{int((sizes > 0).sum()) - len(largest)} other classes"
        axes.scatter(x[rest], y[rest], s=5, color="#c8c8c8", linewidths=0, label=name, rasterized=True)
    for number, label in enumerate(largest):
        style, mask = SeriesStyle.create(number), labels == label
        axes.scatter(
            x[mask],
            y[mask],
            s=16,
            color=style.color,
            marker=style.marker,
            linewidths=0,
            label=escape_text(space["classes"][label], 120.0),
            rasterized=True,
        )
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(escape_text(_describe_space(space), 480.0), loc="left", fontsize=9)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=1.3)
    return figure


def draw_queries(space: dict[str, Any], which: str, sheets: "SpriteSheets") -> "Figure":
    """Draw a row for each query with its neighbors; solid frames and a tick are correct, dashed frames wrong."""
    queries = space[which]
    columns = 1 + max(len(one["neighbors"]) for one in queries)
    figure, whole = create_figure((0.62 * columns + 1.8, 0.78 * len(queries) + 0.5))
    whole.remove()
    grid = figure.add_gridspec(len(queries), columns)
    figure.suptitle(escape_text(f"{which} queries, {_describe_space(space)}", 480.0), x=0.01, ha="left", fontsize=9)
    for line, one in enumerate(queries):
        for column, item in enumerate([one["query"], *one["neighbors"]]):
            axes = figure.add_subplot(grid[line, column])
            _draw_item(axes, item, escape_text(space["classes"][item["label"]], 60.0), sheets)
            if column == 0 and one["value"] is not None:
                axes.set_ylabel(f"AP {one['value']:.2f}", fontsize=6)
    return figure


def _draw_item(axes: "Axes", item: dict[str, Any], name: str, sheets: "SpriteSheets") -> None:
    """One item in its frame, its name below; with a tick if it is correct, because print may lose the frame."""
    image, correct = sheets.get_tile(item["thumbnail"]), item.get("right")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    if image is None:
        axes.text(0.5, 0.5, name, ha="center", va="center", fontsize=5, transform=axes.transAxes)
        axes.set_box_aspect(1)
    else:
        axes.imshow(image)
        # white between image and frame, so that the frame of a dark image can be seen
        axes.set(xlim=(-5, len(image) + 4), ylim=(len(image) + 4, -5))
    axes.set_xlabel(f"\u2713 {name}" if correct else name, fontsize=5, labelpad=2)
    axes.spines[:].set(
        visible=True,
        color="#808080" if correct is None else "#004888" if correct else "#e67e14",
        linewidth=0.8 if correct is None else 2.0 if correct else 1.2,
        linestyle=(0, (3, 2.5)) if correct is False else "-",
        capstyle="butt",
    )


def draw_confusions(space: dict[str, Any]) -> "Figure":
    """Draw a bar for each pair of confused classes."""
    pairs = space["confused"]
    figure, axes = create_figure((5.2, 0.26 * len(pairs) + 1.1))
    rows = np.arange(len(pairs))
    axes.barh(rows, [pair["count"] for pair in pairs], color="#6f8fb3", edgecolor="#00224e")
    names = [f"{escape_text(pair['first'], 90.0)} / {escape_text(pair['second'], 90.0)}" for pair in pairs]
    axes.set_yticks(rows, names)
    axes.locator_params(axis="x", integer=True)
    axes.invert_yaxis()
    axes.set_xlabel("confused queries")
    axes.set_title(escape_text(_describe_space(space), 420.0), loc="left", fontsize=9)
    return figure


def _describe_space(space: dict[str, Any]) -> str:
    shown = f", {space['shown']:,} of {space['count']:,} items" if space["shown"] < space["count"] else ""
    return f"{space['name']}, {space['data']}, {space['split']} classes{shown}"


class SpriteSheets:
    """The thumbnails of a report, by their sprite numbers.

    Args:
        thumbnails: `content["thumbnails"]`.
    """

    def __init__(self, thumbnails: dict[str, Any]) -> None:
        self._tile, self._columns = thumbnails["tile"], thumbnails["columns"]
        self._sheets = [_decode_sheet(sheet) for sheet in thumbnails["sheets"]]
        self._sheet_size = self._columns * (self._sheets[0].shape[0] // self._tile)

    def get_tile(self, sprite: int) -> Array | None:
        """Return one thumbnail (height, width, 3); None for -1."""
        if sprite < 0:
            return None
        sheet, inside = divmod(sprite, self._sheet_size)
        top, left = (self._tile * step for step in divmod(inside, self._columns))
        tile: Array = self._sheets[sheet][top : top + self._tile, left : left + self._tile]
        return tile


def _decode_sheet(sheet: str) -> Array:
    return np.asarray(flatten(open_image(base64.b64decode(sheet.partition(",")[2]), "a sheet of thumbnails")))
