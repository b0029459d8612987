"""Figures of one space: its map, its best and worst queries, what it confuses, how similar kin and others are."""

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from kinfold.data.image_reading import flatten, open_image
from kinfold.data.items import Array
from kinfold.report.content.json_values import unpacked
from kinfold.report.figures.charts import Look, new_figure, numbers, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = 10  # of a map that get a marker of their own


def map_figure(space: dict[str, Any]) -> "Figure":
    """All points in grey; the largest classes with a marker each."""
    x, y = (unpacked(space["map"][axis]) for axis in ("x", "y"))
    labels = unpacked(space["labels"]).astype(np.int64)
    figure, axes = new_figure((6.4, 4.6))
    sizes = np.bincount(labels, minlength=len(space["classes"]))
    largest = [label for label in np.argsort(-sizes, kind="stable")[:CLASSES].tolist() if sizes[label]]
    rest = ~np.isin(labels, largest)
    if rest.any():
        others = f"{int((sizes > 0).sum()) - len(largest)} other classes"
        axes.scatter(x[rest], y[rest], s=5, color="#c8c8c8", linewidths=0, label=others, rasterized=True)
    for place, label in enumerate(largest):
        look, own = Look.number(place), labels == label
        axes.scatter(
            x[own],
            y[own],
            s=16,
            color=look.colour,
            marker=look.marker,
            linewidths=0,
            label=plain(space["classes"][label], 120.0),
            rasterized=True,
        )
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(plain(_told(space), 480.0), loc="left", fontsize=9)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=1.3)
    return figure


def queries_figure(space: dict[str, Any], which: str, tiles: "Tiles") -> "Figure":
    """A line for each query: itself, and its neighbours; solid frames and a tick are right, dashed frames wrong."""
    queries = space[which]
    columns = 1 + max(len(one["neighbors"]) for one in queries)
    figure, whole = new_figure((0.62 * columns + 1.8, 0.78 * len(queries) + 0.5))
    whole.remove()
    grid = figure.add_gridspec(len(queries), columns)
    figure.suptitle(plain(f"{which} queries, {_told(space)}", 480.0), x=0.01, ha="left", fontsize=9)
    for line, one in enumerate(queries):
        for column, item in enumerate([one["query"], *one["neighbors"]]):
            axes = figure.add_subplot(grid[line, column])
            _picture(axes, item, plain(space["classes"][item["label"]], 60.0), tiles)
            if column == 0 and one["value"] is not None:
                axes.set_ylabel(f"AP {one['value']:.2f}", fontsize=6)
    return figure


def _picture(axes: "Axes", item: dict[str, Any], name: str, tiles: "Tiles") -> None:
    """One item in its frame, its name below; with a tick where it is right, because print may lose the frame."""
    picture, right = tiles.tile(item["thumbnail"]), item.get("right")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    if picture is None:
        axes.text(0.5, 0.5, name, ha="center", va="center", fontsize=5, transform=axes.transAxes)
        axes.set_box_aspect(1)
    else:
        axes.imshow(picture)
        # paper between picture and frame, so that dark pictures do not swallow it
        axes.set(xlim=(-5, len(picture) + 4), ylim=(len(picture) + 4, -5))
    axes.set_xlabel(f"\u2713 {name}" if right else name, fontsize=5, labelpad=2)
    axes.spines[:].set(
        visible=True,
        color="#808080" if right is None else "#004888" if right else "#e67e14",
        linewidth=0.8 if right is None else 2.0 if right else 1.2,
        linestyle=(0, (3, 2.5)) if right is False else "-",
        capstyle="butt",
    )


def confused_figure(space: dict[str, Any]) -> "Figure":
    pairs = space["confused"]
    figure, axes = new_figure((5.2, 0.26 * len(pairs) + 1.1))
    places = np.arange(len(pairs))
    axes.barh(places, [pair["count"] for pair in pairs], color="#6f8fb3", edgecolor="#00224e")
    names = [f"{plain(pair['first'], 90.0)} / {plain(pair['second'], 90.0)}" for pair in pairs]
    axes.set_yticks(places, names)
    axes.locator_params(axis="x", integer=True)
    axes.invert_yaxis()
    axes.set_xlabel("items whose nearest neighbour is of the other class")
    axes.set_title(plain(_told(space), 420.0), loc="left", fontsize=9)
    return figure


def histogram_figure(space: dict[str, Any]) -> "Figure":
    found = space["histogram"]
    figure, axes = new_figure()
    edges = numbers(found["edges"])
    axes.stairs(numbers(found["others"]), edges, fill=True, color="#d0d0d0", label="others")
    axes.stairs(numbers(found["others"]), edges, color="#8a8a8a", linestyle=(0, (4, 2)))
    axes.stairs(numbers(found["kin"]), edges, color="#00224e", linewidth=1.6, label="kin")
    axes.set_xlabel("distance" if space["distance"] == "euclidean" else f"{space['distance']} similarity")
    axes.set_ylabel("share of pairs")
    axes.set_title(plain(_told(space), 420.0), loc="left", fontsize=9)
    axes.legend()
    return figure


def _told(space: dict[str, Any]) -> str:
    shown = f", {space['shown']:,} of {space['count']:,} items" if space["shown"] < space["count"] else ""
    return f"{space['name']}, {space['data']}, {space['split']} classes{shown}"


class Tiles:
    """The pictures of sprite sheets, by their numbers."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._tile, self._columns = about["tile"], about["columns"]
        self._sheets = [self._read(sheet) for sheet in about["sheets"]]
        self._each = self._columns * (self._sheets[0].shape[0] // self._tile)

    def tile(self, index: int) -> Array | None:
        if index < 0:
            return None
        sheet, inside = divmod(index, self._each)
        upper, left = (self._tile * place for place in divmod(inside, self._columns))
        found: Array = self._sheets[sheet][upper : upper + self._tile, left : left + self._tile]
        return found

    @staticmethod
    def _read(sheet: str) -> Array:
        return np.asarray(flatten(open_image(base64.b64decode(sheet.partition(",")[2]), "a sheet of thumbnails")))
