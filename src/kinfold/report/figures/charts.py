"""Draws the description of a chart with matplotlib."""

from typing import TYPE_CHECKING

import numpy as np

from kinfold.data.items import Array
from kinfold.report.charts import Axis, Chart, Series, Values
from kinfold.report.figures.style import SeriesStyle, add_legend, choose_size, create_figure, escape_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_chart(chart: Chart) -> "Figure":
    """Draw a chart of any kind."""
    figure, axes = create_figure(choose_size(len(chart.series)))
    draw = {"line": _draw_line, "histogram": _draw_histogram, "scatter": _draw_points}[chart.kind]
    for series in chart.series:
        draw(axes, chart, series, SeriesStyle.create(series.style))
    _set_scale(axes, chart)
    _set_limits(axes, chart)
    axes.set_xlabel(escape_text(label_axis(chart.x)))
    axes.set_ylabel(escape_text(label_axis(chart.y)))
    heading = [chart.title if chart.title != chart.y.label else "", chart.subject]
    axes.set_title(escape_text(", ".join(filter(None, heading)), 420.0), loc="left", fontsize=9)
    if any(series.name for series in chart.series):
        add_legend(axes, len(chart.series))
    return figure


def label_axis(axis: Axis) -> str:
    """Return the text at an axis."""
    return f"{axis.label}, log scale" if axis.scale == "log" else axis.label


def _draw_line(axes: "Axes", chart: Chart, series: Series, style: SeriesStyle) -> None:
    x, y = _to_array(series.x, chart.x), _to_array(series.y, chart.y)
    # a point between two gaps has no line, so every point needs a marker then
    every = 1 if np.isnan(y).any() else max(1, len(x) // 8)
    axes.plot(
        x,
        y,
        label=escape_text(series.name),
        color=style.color,
        linestyle=style.dash,
        marker=style.marker,
        markevery=every,
        markersize=4,
        linewidth=1.4,
    )
    if series.low is not None and series.high is not None:
        low, high = _to_array(series.low, chart.y), _to_array(series.high, chart.y)
        if np.isfinite(low).any():
            axes.fill_between(x, low, high, color=style.color, alpha=0.15, linewidth=0)


def _draw_histogram(axes: "Axes", chart: Chart, series: Series, style: SeriesStyle) -> None:
    edges, shares = _to_array(series.x, chart.x), _to_array(series.y, chart.y)
    axes.stairs(shares, edges, fill=True, color=style.color, alpha=0.15)
    axes.stairs(shares, edges, color=style.color, linestyle=style.dash, linewidth=1.4, label=escape_text(series.name))


def _draw_points(axes: "Axes", chart: Chart, series: Series, style: SeriesStyle) -> None:
    x, y = _to_array(series.x, chart.x), _to_array(series.y, chart.y)
    axes.scatter(x, y, color=style.color, marker=style.marker, s=42, label=escape_text(series.name))


def _set_scale(axes: "Axes", chart: Chart) -> None:
    if chart.x.scale == "log":
        axes.set_xscale("log")
    elif chart.x.integer:
        axes.locator_params(axis="x", integer=True)
    if chart.y.scale == "log":
        axes.set_yscale("log", nonpositive="mask")


def _set_limits(axes: "Axes", chart: Chart) -> None:
    low, high = axes.get_ylim()
    if chart.y.include_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if chart.y.limits is not None and chart.y.scale == "linear":
        values = np.concatenate([_to_array(series.y, chart.y) for series in chart.series])
        low, high = limit_range(low, high, values, chart.y.limits)
    if (low, high) != axes.get_ylim():
        axes.set_ylim(low, high)


def limit_range(low: float, high: float, values: Array, limits: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of an axis, no further than the limits unless a value is beyond them.

    Examples:
        >>> limit_range(0.35, 1.04, np.array([0.4, 1.0]), (0, 1)), limit_range(-0.2, 0.5, np.array([-0.1, 0.4]), (0, 1))
        ((0.35, 1), (-0.2, 0.5))
    """
    finite = values[np.isfinite(values)]
    # differences of 1e-6 are rounding
    return (
        low if (finite < limits[0] - 1e-6).any() else max(low, limits[0]),
        high if (finite > limits[1] + 1e-6).any() else min(high, limits[1]),
    )


def _to_array(values: Values, axis: Axis) -> Array:
    """float64, NaN for missing values and for values that a log axis cannot show."""
    array = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return np.where(array > 0, array, np.nan) if axis.scale == "log" else array
