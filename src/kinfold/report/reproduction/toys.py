"""Figures of the toy problem: the points, the embedding of every variant on the circle, and the spectra."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from kinfold.data.items import Array
from kinfold.papers.published import PublishedRow
from kinfold.report.figures.style import SeriesStyle, escape_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
TEST_SHIFT = 4  # test classes have other markers than training classes


def draw_toys(rows: Sequence[PublishedRow], arrays: Mapping[str, Mapping[str, Array]]) -> "Figure":
    """Draw points, embeddings of all rows, and their spectra."""
    from matplotlib.figure import Figure as NewFigure

    shown = [row for row in rows if row.name in arrays]
    lines = -(-(len(shown) + 2) // COLUMNS)
    figure = NewFigure(figsize=(2.4 * COLUMNS, 2.7 * lines), layout="constrained")
    panels = [figure.add_subplot(lines, COLUMNS, number + 1) for number in range(len(shown) + 2)]
    first = arrays[shown[0].name]
    _draw_points(panels[0], first, "train_points", "test_points")
    panels[0].set_title("points; open: test classes", fontsize=8)
    circle = np.linspace(0, 2 * np.pi, 200)
    for number, (axes, row) in enumerate(zip(panels[1:], shown, strict=False), start=1):
        axes.plot(np.cos(circle), np.sin(circle), color="#dddddd", linewidth=0.8, zorder=0)
        _draw_points(axes, arrays[row.name], "train", "test")
        axes.set_xlim(-1.1, 1.1)
        axes.set_ylim(-1.1, 1.1)
        axes.set_title(fill(escape_text(f"{number}. {row.label}", 600.0), 32), fontsize=7)
    _draw_spectra(panels[-1], shown, arrays)
    return figure


def _draw_points(axes: "Axes", arrays: Mapping[str, Array], train: str, test: str) -> None:
    for name, labels, shift in ((train, "train_labels", 0), (test, "test_labels", TEST_SHIFT)):
        for label in np.unique(arrays[labels]):
            style = SeriesStyle.create(int(label) + shift)
            points = arrays[name][arrays[labels] == label]
            face: dict[str, Any] = {"facecolors": style.color if shift == 0 else "none"}
            axes.scatter(
                points[:, 0], points[:, 1], s=13, marker=style.marker, edgecolors=style.color, linewidths=0.8, **face
            )
    axes.set_aspect("equal")
    axes.tick_params(labelsize=6)


def _draw_spectra(axes: "Axes", rows: Sequence[PublishedRow], arrays: Mapping[str, Mapping[str, Array]]) -> None:
    """Both singular values of the training embeddings, a line for each row."""
    for position, row in enumerate(rows):
        larger, smaller = arrays[row.name]["spectrum"]
        axes.barh(position, larger, color="#1f77b4", height=0.7)
        axes.barh(position, smaller, left=larger, color="#d98c21", height=0.7)
    axes.set_yticks(range(len(rows)), [str(position + 1) for position in range(len(rows))], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title("share of both singular values", fontsize=8)
