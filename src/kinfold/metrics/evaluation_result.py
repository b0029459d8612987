"""The result of `examine`: metrics with values per query and class, intervals, a table and a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from kinfold.metrics.verification_curve import VerificationCurve
from kinfold.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METRICS_IN_REPR = 4


class MetricRow(NamedTuple):
    """One metric of an evaluation.

    Args:
        name: The name of the metric.
        value: Its value.
        interval: (low, high) of its bootstrap interval; None if there is none.
    """

    name: str
    value: float
    interval: tuple[float, float] | None


class MetricTable(list[MetricRow]):
    """A list of metrics that prints as an aligned table, and as an HTML table in notebooks.

    Args:
        rows: The rows.
        level: The level of the intervals, for the header.
    """

    def __init__(self, rows: Sequence[MetricRow], level: float) -> None:
        super().__init__(rows)
        self.level = level

    def _to_cells(self) -> list[list[str]]:
        """Return header and rows as strings."""
        has_intervals = any(row.interval for row in self)
        cells = [["metric", "value", *([f"{100 * self.level:g} % interval"] * has_intervals)]]
        for row in self:
            interval = f"{row.interval[0]:.4f} to {row.interval[1]:.4f}" if row.interval else ""
            cells.append([row.name, f"{row.value:.4f}", *([interval] * has_intervals)])
        return cells

    def __repr__(self) -> str:
        cells = self._to_cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if number == 0 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        header, *rows = [[escape(cell) for cell in row] for row in self._to_cells()]
        head = "".join(f"<th>{cell}</th>" for cell in header)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What `examine` measured.

    Args:
        values: The value of every metric by name.
        per_query: The values of retrieval metrics for each query, (Q,) float64, NaN for queries that are left out.
        intervals: (low, high) of retrieval metrics, if intervals were requested.
        skipped_queries: The number of queries without a relevant item.
        classes: The labels as they were passed, each once.
        query_class: The index in `classes` of each query, (Q,).
        curve: The verification curve of all pairs, if a metric needed it.
        level: The level of the intervals.
    """

    values: dict[str, float]
    per_query: dict[str, Tensor]
    intervals: dict[str, tuple[float, float]]
    skipped_queries: int
    classes: Sequence[int | str]
    query_class: Tensor
    curve: VerificationCurve | None = None
    level: float = 0.95

    def per_class(self, name: str) -> dict[int | str, float]:
        """Return the mean of a retrieval metric over the queries of each class.

        Args:
            name: The name of a retrieval metric of this evaluation.

        Returns:
            The mean by label. Classes whose queries are all left out are missing.

        Raises:
            ValueError: The metric has no values per query.
        """
        if name not in self.per_query:
            raise ValueError(f"{name!r} has no value for each query; {', '.join(self.per_query) or 'no metric'} has")
        values = self.per_query[name]
        counted = ~values.isnan()
        sums = values.new_zeros(len(self.classes)).index_add_(0, self.query_class[counted], values[counted])
        counts = torch.bincount(self.query_class[counted], minlength=len(self.classes))
        entries = zip([*self.classes], sums.tolist(), counts.tolist(), strict=True)
        return {label: total / count for label, total, count in entries if count}

    def table(self) -> MetricTable:
        """Return the metrics as rows of (name, value, interval)."""
        return MetricTable(
            [MetricRow(name, value, self.intervals.get(name)) for name, value in self.values.items()], self.level
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the metrics as horizontal bars, with their intervals.

        Args:
            ax: The matplotlib axes to draw on; None creates a figure.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        pyplot = import_optional("matplotlib.pyplot", "matplotlib", "report", "Evaluation.plot")
        rows = self.table()
        if ax is None:
            ax = pyplot.subplots(figsize=(6.0, 0.8 + 0.35 * len(rows)), layout="constrained")[1]
        assert ax is not None
        bars = ax.barh([row.name for row in rows], [row.value for row in rows])
        ax.bar_label(bars, [f"{row.value:.4f}" for row in rows], label_type="center", color="white")
        for position, row in enumerate(rows):
            if row.interval:
                ax.plot(row.interval, [position, position], color="black", linewidth=1.5)
        ax.invert_yaxis()
        ax.set_xlabel("value" + (f", {100 * self.level:g} % interval" if self.intervals else ""))
        return ax

    def _describe(self) -> str:
        queries, classes = self.query_class.shape[0], len(self.classes)
        skipped = f", {self.skipped_queries:,} without a relevant item" if self.skipped_queries else ""
        return f"{queries:,} queries{skipped}, {classes:,} {'class' if classes == 1 else 'classes'}"

    def __repr__(self) -> str:
        scores = [f"{name}={value:.4f}" for name, value in self.values.items()]
        more = len(scores) - _METRICS_IN_REPR
        shown = ", ".join(scores[:_METRICS_IN_REPR]) + (f", and {more} more" if more > 0 else "")
        return f"Evaluation({shown}; {self._describe()})"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._describe())}</p>{self.table()._repr_html_()}"
