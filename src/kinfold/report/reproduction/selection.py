"""Which rows of a reproduction are shown, how each looks, and its numbers as they are drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kinfold.data.items import Array
from kinfold.experiments.statistics import compute_interval
from kinfold.papers.published import PublishedRow
from kinfold.papers.reproduce import Reproduction
from kinfold.papers.table_files import parse_metric
from kinfold.registry import suggest
from kinfold.report.figures.style import SeriesStyle

WITHOUT_DASH = (0, (4, 2))


@dataclass(frozen=True)
class Look:
    """How a row looks. A row and the row without what it adds have one color and one marker.

    Attributes:
        style: Color, dash and marker.
        filled: Whether its marker is filled: not in a row that lacks what another one adds.
    """

    style: SeriesStyle
    filled: bool = True

    @property
    def face(self) -> str:
        """The color inside of a marker."""
        return self.style.color if self.filled else "white"


def get_line(row: PublishedRow) -> str:
    """Return the name of the line that a row of a curve is a point of; the name of any other row.

    Examples:
        >>> get_line(PublishedRow("dro-kl@80", "DRO-KL", {}, x=80))
        'dro-kl'
    """
    return row.name if row.x is None else row.name.rpartition("@")[0]


def select_rows(reproduction: Reproduction, methods: Sequence[str] = ()) -> list[PublishedRow]:
    """Select the rows of a table that have a number of ours or a published one.

    Args:
        reproduction: Our numbers.
        methods: Names of rows or lines, or labels; all where empty.

    Raises:
        ValueError: A method is unknown.
    """
    plan, data = reproduction.plan, reproduction.data
    rows = [row for row in plan.table.rows if row in plan.rows or (row in plan.not_run and data in row.published)]
    if not methods:
        return rows
    check_methods(rows, methods)
    return [row for row in rows if {row.name, get_line(row), row.label} & {*methods}]


def check_methods(rows: Sequence[PublishedRow], methods: Sequence[str]) -> None:
    """Raise a ValueError for a method that is neither the name of a row or line nor a label."""
    names = [name for row in rows for name in (row.name, get_line(row), row.label)]
    for method in methods:
        if method not in names:
            lines = [*dict.fromkeys(map(get_line, rows))]
            raise ValueError(f"there is no method {method!r}{suggest(method, names)}; there are {', '.join(lines)}")


def create_looks(rows: Sequence[PublishedRow]) -> dict[str, Look]:
    """Create a look for each line; rows that differ in one thing share color and marker."""
    lines = {get_line(row): row for row in rows}
    bases = {name: _strip_axis(row) for name, row in lines.items() if row.without and _strip_axis(row) in lines}
    numbers = {name: number for number, name in enumerate(name for name in lines if name not in bases)}
    looks = {}
    for name in lines:
        style = SeriesStyle.create(numbers[bases.get(name, name)])
        if name in bases:
            style = replace(style, dash="-")
        elif name in bases.values():
            style = replace(style, dash=WITHOUT_DASH)
        looks[name] = Look(style, name not in bases.values())
    return looks


def _strip_axis(row: PublishedRow) -> str:
    assert row.without is not None
    return row.without if row.x is None else row.without.rpartition("@")[0]


def scale_of(column: str) -> float:
    """Return 100 for a metric, which is drawn in percent as it is published; otherwise 1."""
    return 1.0 if parse_metric(column) is None or column.startswith("rho") else 100.0


def label_column(column: str) -> str:
    """Return the text at the axis of a column."""
    return f"{column}, %" if scale_of(column) == 100.0 else column


def summarize(values: Mapping[int, float], column: str) -> tuple[float, float]:
    """Return mean and half width of the 95 % interval over seeds; NaN where there is none."""
    if not values:
        return np.nan, np.nan
    interval = compute_interval([*values.values()])
    return interval.mean * scale_of(column), interval.half_width * scale_of(column)


def get_published(row: PublishedRow, data: str, column: str) -> tuple[float, float]:
    """Return a published number and its spread; NaN where the text lost it, or has none."""
    number = row.published.get(data, {}).get(column)
    if number is None or number.value is None:
        return np.nan, np.nan
    return number.value, np.nan if number.spread is None else number.spread


def to_numbers(values: Sequence[Any]) -> Array:
    """Return float64 positions; what is no number is counted."""
    if all(isinstance(value, int | float) for value in values):
        return np.array(values, dtype=np.float64)
    return np.arange(len(values), dtype=np.float64)
