"""How figures look in print: every method has its own dash and marker, so that nothing depends on color.

matplotlib is imported when a figure is made; its settings are restored afterwards.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinfold.optional import import_optional
from kinfold.report.charts import NEGATIVE, POSITIVE
from kinfold.report.drawable_text import make_drawable, shorten_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 200
SIZE = (5.2, 3.6)  # inches
WIDE = (7.4, 3.6)  # with the legend beside the axes
LEGEND_ROWS = 24  # of a legend beside the axes; more names take another column
MAX_INSIDE = 6  # series of a legend inside of the axes
MAX_LABEL = 230.0  # pixels of a name in a legend
# from dark to light in grayscale too
COLORS = ("#00224e", "#b5541c", "#1f77b4", "#7a3b8f", "#2a8a5c", "#d98c21", "#6f8fb3", "#8a8a8a")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.4)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", ">", "*", "h")
SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "kinfold",
}


@dataclass(frozen=True)
class SeriesStyle:
    """Color, dash and marker of a series; any two of the first 55 differ in dash or marker."""

    color: str
    dash: Any
    marker: str

    @staticmethod
    def create(style: int | str) -> "SeriesStyle":
        """Return the look for the `style` of a `kinfold.report.charts.Series`."""
        number = {POSITIVE: 0, NEGATIVE: 1}[style] if isinstance(style, str) else style
        return SeriesStyle(COLORS[number % len(COLORS)], DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)])


@contextmanager
def use_style() -> Iterator[None]:
    """Use the settings for all figures that are drawn inside of this context."""
    import_optional("matplotlib", "matplotlib", "report", "--figures")
    from matplotlib import rc_context

    with rc_context(SETTINGS):
        yield


def create_figure(size: tuple[float, float] = SIZE) -> "tuple[Figure, Axes]":
    """Create a figure with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def choose_size(count: int) -> tuple[float, float]:
    """Return the size of a figure whose legend has so many entries; a long legend is beside the axes.

    Examples:
        >>> choose_size(4), choose_size(24)
        ((5.2, 3.6), (7.4, 4.64))
    """
    return SIZE if count <= MAX_INSIDE else (WIDE[0], max(WIDE[1], round(0.8 + 0.16 * min(count, LEGEND_ROWS), 2)))


def add_legend(axes: "Axes", count: int) -> None:
    """Add a legend, beside the axes if it is long."""
    if count > MAX_INSIDE:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), ncols=-(-count // LEGEND_ROWS))
    else:
        axes.legend(loc="best")


def render_figure(figure: "Figure", kind: str) -> bytes:
    """Return the bytes of a PNG or SVG file, the same for the same figure."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # unknown characters were replaced before; combining characters may still be reported
        warnings.filterwarnings("ignore", message=".*([Gg]lyph|font).*")
        figure.savefig(file, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return file.getvalue()


def escape_text(text: str, width: float = MAX_LABEL) -> str:
    """Return a text as matplotlib can draw it: no formula, no character without a glyph, not too long."""
    return shorten_label(make_drawable(text), width).replace("\\", "\\\\").replace("$", r"\$")
