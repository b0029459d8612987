"""Figures of numbers: lines over an axis, rows with intervals, pairs with and without, bars of running times."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kinfold.papers.comparison import find_axis_value
from kinfold.papers.published import PublishedRow
from kinfold.papers.reproduce import RHO, SECONDS, Reproduction
from kinfold.report.figures.style import add_legend, choose_size, create_figure, escape_text
from kinfold.report.reproduction.selection import (
    Look,
    get_line,
    get_published,
    label_column,
    summarize,
    to_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Looks = Mapping[str, Look]
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++++", "oooo")  # so that bars do not depend on color
PUBLISHED: dict[str, Any] = {
    "marker": "x",
    "color": "#444444",
    "linestyle": "none",
    "markersize": 6,
    "markeredgewidth": 1.4,
}


def draw_lines(reproduction: Reproduction, rows: Sequence[PublishedRow], looks: Looks, column: str) -> "Figure":
    """Draw a column over the axis of a curve, with bands of intervals and crosses where a number is published."""
    lines = _group_lines(rows)
    figure, axes = create_figure(choose_size(len(lines) + 1))
    values = [*dict.fromkeys(row.x for row in rows)]
    position_of = dict(zip(values, to_numbers(values), strict=True))
    published: dict[str, Any] | None = None
    for name, points in lines.items():
        look = looks[name]
        x = np.array([position_of[row.x] for row in points])
        ours = np.array([summarize(reproduction.ours.get(row.name, {}).get(column, {}), column) for row in points])
        style: dict[str, Any] = {"color": look.style.color, "linestyle": look.style.dash, "linewidth": 1.4}
        marker: dict[str, Any] = {"marker": look.style.marker, "markersize": 4, "markerfacecolor": look.face}
        axes.plot(x, ours[:, 0], label=escape_text(points[0].label), **style, **marker)
        if np.isfinite(ours[:, 1]).any():
            axes.fill_between(
                x, ours[:, 0] - ours[:, 1], ours[:, 0] + ours[:, 1], color=look.style.color, alpha=0.13, linewidth=0
            )
        numbers = np.array([get_published(row, reproduction.data, column)[0] for row in points])
        if np.isfinite(numbers).any():
            published = {**PUBLISHED, "color": look.style.color}
            axes.plot(x, numbers, **published)
    if published is not None:
        axes.plot([], [], **PUBLISHED, label="published")
    _label_axis(axes, reproduction, rows, [*position_of.values()])
    axes.set_ylabel(escape_text(label_column(column)))
    add_legend(axes, len(lines) + 1)
    return figure


def draw_rows(reproduction: Reproduction, rows: Sequence[PublishedRow], looks: Looks, column: str) -> "Figure":
    """Draw a column of a table: our mean and interval in each row, a cross at the published number."""
    figure, axes = create_figure((6.4, max(2.4, 0.24 * len(rows) + 0.9)))
    for position, row in enumerate(rows):
        look = looks[get_line(row)]
        mean, half_width = summarize(reproduction.ours.get(row.name, {}).get(column, {}), column)
        error = None if np.isnan(half_width) else half_width
        marker: dict[str, Any] = {"marker": look.style.marker, "markerfacecolor": look.face, "markersize": 6}
        axes.errorbar([mean], [position], xerr=error, color=look.style.color, linestyle="none", capsize=2, **marker)
        number, spread = get_published(row, reproduction.data, column)
        if np.isfinite(number):
            axes.plot([number], [position], **PUBLISHED)
            if np.isfinite(spread):
                axes.plot([number - spread, number + spread], [position, position], color="#444444", linewidth=0.8)
    axes.plot([], [], "o", color="#777777", label="ours, 95 % interval")
    axes.plot([], [], **PUBLISHED, label="published")
    if any(not look.filled for look in looks.values()):
        axes.plot([], [], "o", color="#777777", markerfacecolor="white", label="without what its pair adds")
    axes.set_yticks(range(len(rows)), [escape_text(row.label) for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(escape_text(label_column(column)))
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_pairs(reproduction: Reproduction, rows: Sequence[PublishedRow], column: str) -> "Figure":
    """Draw bars of every method without and with what the paper adds, with intervals and published numbers.

    Bars begin at zero, so that their lengths can be compared. The difference is printed above each pair.
    """
    by_name = {row.name: row for row in rows}
    pairs = [(by_name[row.without], row) for row in rows if row.without in by_name]
    figure, axes = create_figure((max(4.6, 0.62 * len(pairs) + 1.6), 3.6))
    for side, (shift, color, hatch, text) in enumerate(
        ((-0.2, "#b5541c", "", "without"), (0.2, "#2a8a5c", "//", "with"))
    ):
        members = [pair[side] for pair in pairs]
        ours = np.array([summarize(reproduction.ours.get(row.name, {}).get(column, {}), column) for row in members])
        x = np.arange(len(pairs)) + shift
        axes.bar(x, ours[:, 0], 0.36, color=color, alpha=0.75, hatch=hatch, edgecolor="white", label=text)
        spread = np.isfinite(ours[:, 1])
        axes.errorbar(x[spread], ours[spread, 0], ours[spread, 1], color="black", linestyle="none", capsize=2)
        axes.plot(x, [get_published(row, reproduction.data, column)[0] for row in members], **PUBLISHED)
    axes.plot([], [], **PUBLISHED, label="published")
    _add_differences(axes, reproduction, pairs, column)
    labels = [escape_text(base.label, 170.0) for base, _ in pairs]
    axes.set_xticks(range(len(pairs)), labels, rotation=30, ha="right", fontsize=7)
    axes.set_ylabel(escape_text(label_column(column)))
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def draw_bars(reproduction: Reproduction, rows: Sequence[PublishedRow], looks: Looks) -> "Figure":
    """Draw running times as bars, a group for each value of the axis."""
    lines = _group_lines(rows)
    values = [*dict.fromkeys(row.x for row in rows)]
    figure, axes = create_figure(choose_size(max(7, len(lines))))
    width = 0.8 / len(lines)
    for number, (name, points) in enumerate(lines.items()):
        seconds = {row.x: summarize(reproduction.ours.get(row.name, {}).get(SECONDS, {}), SECONDS)[0] for row in points}
        x = np.arange(len(values)) - 0.4 + (number + 0.5) * width
        heights = [seconds.get(value, np.nan) for value in values]
        fill: dict[str, Any] = {"color": looks[name].style.color, "hatch": HATCHES[number % len(HATCHES)]}
        axes.bar(x, heights, width, edgecolor="white", linewidth=0.4, label=escape_text(points[0].label), **fill)
    _label_axis(axes, reproduction, rows, range(len(values)))
    axes.set_ylabel(SECONDS)
    add_legend(axes, max(7, len(lines)))
    return figure


def draw_decay(reproduction: Reproduction, rows: Sequence[PublishedRow], looks: Looks, column: str) -> "Figure":
    """Draw recall against the spectral decay of the training classes, both with their intervals."""
    figure, axes = create_figure(choose_size(max(7, len(rows))))
    for row in rows:
        look, ours = looks[get_line(row)], reproduction.ours.get(row.name, {})
        x, x_width = summarize(ours.get(RHO, {}), RHO)
        y, y_width = summarize(ours.get(column, {}), column)
        axes.errorbar(
            [x],
            [y],
            xerr=None if np.isnan(x_width) else x_width,
            yerr=None if np.isnan(y_width) else y_width,
            color=look.style.color,
            marker=look.style.marker,
            markerfacecolor=look.face,
            ecolor="#aaaaaa",
            linestyle="none",
            label=escape_text(row.label),
        )
    axes.set_xlabel(f"{RHO} of the training classes")
    axes.locator_params(axis="x", nbins=6)  # numbers with many digits are wide
    axes.set_ylabel(escape_text(label_column(column)))
    add_legend(axes, max(7, len(rows)))
    return figure


def _add_differences(
    axes: "Axes", reproduction: Reproduction, pairs: Sequence[tuple[PublishedRow, PublishedRow]], column: str
) -> None:
    """Print with minus without above each pair, and leave space for it."""
    highest = 0.0
    for position, pair in enumerate(pairs):
        ours = [summarize(reproduction.ours.get(row.name, {}).get(column, {}), column) for row in pair]
        published = [get_published(row, reproduction.data, column)[0] for row in pair]
        tops = [mean + np.nan_to_num(half_width) for mean, half_width in ours]
        top = float(np.nanmax([0.0, *tops, *published]))
        highest = max(highest, top)
        difference = ours[1][0] - ours[0][0]
        if np.isfinite(difference):
            text: dict[str, Any] = {
                "ha": "center",
                "va": "bottom",
                "fontsize": 7,
                "xytext": (0, 4),
                "textcoords": "offset points",
            }
            axes.annotate(f"{difference:+.1f}", (position, top), **text)
    axes.set_ylim(0.0, 1.12 * highest if highest > 0.0 else 1.0)


def _label_axis(
    axes: "Axes", reproduction: Reproduction, rows: Sequence[PublishedRow], positions: Sequence[float]
) -> None:
    """Name the axis of a curve, with the paper's values at its ticks; below them those that were run instead."""
    plan, ran = reproduction.plan, dict[Any, list[str]]()
    for row in rows:
        values = ran.setdefault(row.x, [])
        if row in plan.rows:
            value = str(find_axis_value(plan, reproduction.data, row))
            values += [value] * (value not in values)
    changed = any(values != [str(x)] for x, values in ran.items() if values)
    ticks = [f"{x}\n{', '.join(values)}" if changed else str(x) for x, values in ran.items()]
    axes.set_xticks(positions, ticks, fontsize=8)
    label = plan.table.axis or next(iter(plan.table.vary), "").rpartition(".")[2].replace("_", " ")
    axes.set_xlabel(escape_text(label, 600.0) + ("\nsecond line: what was run here" if changed else ""))


def _group_lines(rows: Sequence[PublishedRow]) -> dict[str, list[PublishedRow]]:
    lines: dict[str, list[PublishedRow]] = {}
    for row in rows:
        lines.setdefault(get_line(row), []).append(row)
    return lines
