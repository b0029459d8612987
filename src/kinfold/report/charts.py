"""One description for each chart of a report, as plain data.

A chart is described once, in Python. The page (`page/assets/chart.js`) and matplotlib (`figures/charts.py`) both draw
the same description. To add a chart, return a `Chart` from `kinfold.report.content` and put it into one of the lists
of `content["charts"]`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Values = Sequence[float | None]

POSITIVE, NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Args:
        label: What is measured.
        scale: "linear" or "log". On a log axis, values at or below zero are gaps.
        limits: Ends that the axis does not pass unless a value does, such as (0, 1) for fractions.
        integer: Whether ticks are integers, as for steps and ranks.
        include_zero: Whether zero is always in view.
    """

    label: str
    scale: Literal["linear", "log"] = "linear"
    limits: tuple[float, float] | None = None
    integer: bool = False
    include_zero: bool = False


@dataclass(frozen=True)
class Series:
    """One line, one set of bars, or the points of one method.

    Args:
        name: Its name in the legend.
        x: Positions; in a histogram the edges of the bins, one more than values.
        y: Values, None for a gap.
        style: How it looks: the number of a method, the same in all charts, or "positive" or "negative" for pairs.
        low: Lower edge of a band around the line.
        high: Upper edge of the band.
    """

    name: str
    x: Values
    y: Values
    style: int | str
    low: Values | None = None
    high: Values | None = None


@dataclass(frozen=True)
class Chart:
    """A chart with everything that is needed to draw it.

    Args:
        name: Name of its file among the figures.
        title: Its heading.
        x: The horizontal axis.
        y: The vertical axis.
        series: What is drawn.
        kind: "line", "histogram" or "scatter".
        subject: The data or the embedding space that it shows.
        note: A remark that the page shows beside the title.
        spaces: Indices of the embedding spaces that it belongs to; empty for a chart of the whole report.
    """

    name: str
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    kind: Literal["line", "histogram", "scatter"] = "line"
    subject: str = ""
    note: str = ""
    spaces: Sequence[int] = field(default_factory=tuple)

    @staticmethod
    def from_dict(chart: dict[str, Any]) -> "Chart":
        """Build the chart from the dictionary that `dataclasses.asdict` made of it, or from the JSON of that."""
        parts = {"x": Axis(**chart["x"]), "y": Axis(**chart["y"]), "series": [Series(**one) for one in chart["series"]]}
        return Chart(**{**chart, **parts})
