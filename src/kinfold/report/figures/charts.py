"""Figures for print: every line has a dash and a marker of its own, so that nothing hangs on colour.

matplotlib is asked for when a figure is made; its settings are put back afterwards.
"""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kinfold.data.items import Array
from kinfold.optional import import_optional
from kinfold.report.neighbor_grid import readable, shorten_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 200
SIZE = (5.2, 3.6)  # inches
# from dark to light in grey as well
COLOURS = ("#00224e", "#b5541c", "#1f77b4", "#7a3b8f", "#2a8a5c", "#d98c21", "#6f8fb3", "#8a8a8a")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.4)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", ">", "*", "h")
LONGEST = 230.0  # pixels of a name in a legend
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
class Look:
    """How a series is drawn; any two of the first 55 differ in dash or marker."""

    colour: str
    dash: Any
    marker: str

    @staticmethod
    def number(place: int) -> "Look":
        return Look(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])

    def line(self, points: int, gaps: bool = False) -> dict[str, Any]:
        """gaps: every point gets its marker, because one between two gaps has no line to be seen by."""
        every = 1 if gaps else max(1, points // 8)
        return {
            "color": self.colour,
            "linestyle": self.dash,
            "marker": self.marker,
            "markevery": every,
            "markersize": 4,
            "linewidth": 1.4,
        }


@contextmanager
def style() -> Iterator[None]:
    """Within it figures look alike."""
    import_optional("matplotlib", "matplotlib", "report", "--figures")
    from matplotlib import rc_context

    with rc_context(SETTINGS):
        yield


def new_figure(size: tuple[float, float] = SIZE) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def image(figure: "Figure", kind: str) -> bytes:
    """The figure as the bytes of a file, the same for the same figure."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # letters without a shape were replaced; what combines with its neighbours may still be told of
        warnings.filterwarnings("ignore", message=".*([Gg]lyph|font).*")
        figure.savefig(file, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return file.getvalue()


def plain(text: str, width: float = LONGEST) -> str:
    """A name as matplotlib can draw it: no formula, no letter without a shape, not too long."""
    return shorten_label(readable(text), width).replace("\\", "\\\\").replace("$", r"\$")


def legend(axes: "Axes", count: int) -> None:
    if count > 6:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), ncols=1 + count // 24)
    else:
        axes.legend(loc="best")


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[dict[str, Any]],
    log_x: bool = False,
    *,
    log_y: bool = False,
    shares: bool = False,
    whole_x: bool = False,
) -> "Figure":
    """series: name, x, y and perhaps low and high, the edges of a band. shares: y lies between 0 and 1, and so does its
    axis. whole_x: steps and the like, which have no halves."""
    many = len(series) > 6
    figure, axes = new_figure((SIZE[0] + 2.2, SIZE[1]) if many else SIZE)
    for place, one in enumerate(series):
        look = Look.number(place)
        x, y = (numbers(one[key]) for key in ("x", "y"))
        if log_x:
            x = np.where(x > 0, x, np.nan)
        axes.plot(x, y, label=plain(one["name"]), **look.line(len(x), gaps=bool(np.isnan(y).any())))
        low, high = (numbers(one.get(key) or [None] * len(x)) for key in ("low", "high"))
        if np.isfinite(low).any():
            axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
    if log_x:
        axes.set_xscale("log")
    elif whole_x:
        axes.locator_params(axis="x", integer=True)
    if log_y:
        axes.set_yscale("log", nonpositive="mask")
    elif shares:
        axes.set_ylim(*within_shares(*axes.get_ylim(), [value for one in series for value in numbers(one["y"])]))
    axes.set_xlabel(plain(x_label))
    axes.set_ylabel(plain(y_label))
    axes.set_title(plain(title, 420.0), loc="left", fontsize=9)
    if any(one["name"] for one in series):
        legend(axes, len(series))
    return figure


def within_shares(low: float, high: float, values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis of shares: no further than 0 and 1, unless a value lies there.

    >>> within_shares(0.35, 1.04, [0.4, 1.0]), within_shares(-0.2, 0.5, [-0.1, 0.4])
    ((0.35, 1.0), (-0.2, 0.5))
    """
    known = [value for value in values if np.isfinite(value)]
    # a little more than 1 is rounding
    return (
        low if any(value < -1e-6 for value in known) else max(low, 0.0),
        high if any(value > 1 + 1e-6 for value in known) else min(high, 1.0),
    )


def numbers(values: Sequence[float | None]) -> Array:
    """float64, NaN for what is missing."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
