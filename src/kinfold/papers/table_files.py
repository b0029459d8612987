"""Read the TOML file of a published table, and check every key and the settings of every row."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kinfold import registry
from kinfold.metrics.lookup import find_metric
from kinfold.papers.published import (
    UNREADABLE,
    Kind,
    Protocol,
    PublishedNumber,
    PublishedRow,
    PublishedTable,
    Selection,
    Settings,
    Spread,
)
from kinfold.registry import suggest
from kinfold.training.config.parsing import configure, parse_table

COLUMN_GROUPS = (" separated", " concatenated")
WITHOUT_AXIS = ("table", "space")  # kinds
TOY = "toy"


@dataclass(frozen=True)
class _Head:
    """[table]"""

    paper: str
    source: str
    title: str
    kind: Kind
    metrics: list[str]
    data: list[str] = field(default_factory=list)
    protocol: Protocol | None = None
    selection: Selection | None = None
    runs: int | None = None
    spread: Spread | None = None
    caveats: list[str] = field(default_factory=list)
    axis: str | None = None
    vary: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Row:
    """[[row]]"""

    name: str
    label: str
    published: dict[str, Any] = field(default_factory=dict)
    quoted: str | None = None
    quoted_on: dict[str, Any] = field(default_factory=dict)
    not_run: str | None = None
    without: str | None = None
    caveats: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    on: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _File:
    table: _Head
    row: list[dict[str, Any]]
    base: dict[str, Any] = field(default_factory=dict)
    on: dict[str, Any] = field(default_factory=dict)


def build_table(name: str, tables: Mapping[str, Any]) -> PublishedTable:
    """Build a published table from the tables of its TOML file.

    Args:
        name: Name of the table.
        tables: Tables of the file. Published numbers may be decimals, which keep all printed digits; all other decimals
            become floats.

    Raises:
        ValueError: Something is wrong; the message starts with the name.
    """
    try:
        return _build(name, {key: _with_floats(value) for key, value in tables.items()})
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def parse_metric(column: str) -> str | None:
    """Return the metric in the name of a column; None where it is not one of ours.

    Examples:
        >>> parse_metric("precision@1 separated"), parse_metric("seconds per step")
        ('precision@1', None)
    """
    for group in COLUMN_GROUPS:
        column = column.removesuffix(group)
    try:
        find_metric(column)
    except ValueError:
        return None
    return column


def _build(name: str, tables: Mapping[str, Any]) -> PublishedTable:
    file = parse_table(_File, tables, "")
    head = file.table
    _check_head(head)
    _check_names(file.on, head.data, "[on]", "table.data")
    file_rows = [
        parse_table(_Row, entry, f"row {entry.get('name', number)}") for number, entry in enumerate(file.row, start=1)
    ]
    for file_row in file_rows:
        _check_row(file_row, head)
        if sum(other.name == file_row.name for other in file_rows) > 1:
            raise ValueError(f"two rows are named {file_row.name!r}")
        if file_row.without is not None:
            others = [other.name for other in file_rows if other is not file_row]
            _check_names([file_row.without], others, f"row {file_row.name}, without", "the other rows")
    rows = tuple(row for file_row in file_rows for row in _expand_row(file_row, file))
    for row in rows:
        _check_settings(row, head)
    _check_spread(rows, head)
    return PublishedTable(
        name,
        head.paper,
        head.source,
        head.title,
        head.kind,
        tuple(head.data),
        tuple(head.metrics),
        head.protocol,
        head.selection,
        head.runs,
        head.spread,
        tuple(head.caveats),
        head.vary,
        rows,
        head.axis,
    )


def _check_head(head: _Head) -> None:
    if not head.metrics:
        raise ValueError("table.metrics names no column")
    if len({*head.metrics}) < len(head.metrics) or len({*head.data}) < len(head.data):
        raise ValueError("table.metrics and table.data name each thing once")
    if head.kind in ("table", "curve"):
        for metric in head.metrics:
            if parse_metric(metric) is None:
                near = suggest(metric, registry.names("metrics"))
                raise ValueError(f"unknown metric {metric!r} in table.metrics{near}; kinfold.list('metrics') shows all")
    if head.kind != TOY:
        if head.protocol is None or head.selection is None or not head.data:
            raise ValueError('[table] needs data, protocol and selection, unless kind = "toy"')
        _check_names(head.data, registry.names("datasets"), "table.data", "the data sets")
    if head.kind == "curve" and not head.vary:
        raise ValueError("a curve needs [table.vary], its axis")
    if head.axis is not None and not head.vary:
        raise ValueError("table.axis names the axis of a curve: give [table.vary] too, or leave it out")
    if head.kind in WITHOUT_AXIS and head.vary:
        raise ValueError(f'[table.vary] is the axis of a curve, and kind = "{head.kind}" has none')
    lengths = {len(values) if isinstance(values, list) else 0 for values in head.vary.values()}
    if head.vary and (0 in lengths or len(lengths) > 1):
        raise ValueError("[table.vary] has lists of values, all of one length")


def _check_row(line: _Row, head: _Head) -> None:
    where = f"row {line.name}"
    if not re.fullmatch(r"[a-z0-9.]+(-[a-z0-9.]+)*", line.name):
        raise ValueError(f"the name of a row has lower-case letters, digits and hyphens, got {line.name!r}")
    if line.not_run is not None and (line.settings or line.on):
        raise ValueError(f"{where} has settings and a reason why it is not run: leave one of them out")
    if line.quoted is not None and line.not_run is None and not (line.settings or line.on):
        raise ValueError(f"{where} is quoted: give settings to run it with, or not_run, the reason why there are none")
    if head.kind == TOY and line.not_run is None and not isinstance(line.settings.get(TOY), dict):
        raise ValueError(f"{where} of a toy needs [row.settings.toy]")
    _check_names(line.on, head.data, f"{where}, [row.on]", "table.data")
    if line.quoted is not None and line.quoted_on:
        raise ValueError(f"{where} has quoted and quoted_on: the first is for all data sets")
    if not all(isinstance(source, str) for source in line.quoted_on.values()):
        raise ValueError(f"{where}: quoted_on must be data set -> source, got {line.quoted_on!r}")
    if line.quoted_on:
        _check_names(line.quoted_on, [*line.published], f"{where}, quoted_on", "the data that it has numbers for")
    _check_names(line.published, _list_data(head), f"{where}, published", "table.data")
    for data, cells in line.published.items():
        if not isinstance(cells, dict):
            raise ValueError(f"{where}, published.{data} must be a table of metrics, got {cells!r}")
        _check_names(cells, head.metrics, f"{where}, published.{data}", "table.metrics")


def _check_settings(row: PublishedRow, head: _Head) -> None:
    if head.kind == TOY:
        return
    for data in row.layers:
        try:
            configure(row.settings(data))
        except ValueError as error:
            raise ValueError(f"row {row.name} on {data}: {error}") from None


def _check_spread(rows: Sequence[PublishedRow], head: _Head) -> None:
    has_spread = any(
        cell.spread is not None for row in rows for cells in row.published.values() for cell in cells.values()
    )
    if has_spread and head.spread is None:
        raise ValueError(
            "numbers are published with a plus-minus sign: say in [table] what it stands for, as in "
            'spread = "standard deviation", or spread = "not stated"'
        )
    if head.spread is not None and not has_spread:
        raise ValueError("[table] has a spread, but no number is published with a plus-minus sign: leave it out")


def _check_names(names: Iterable[str], valid: Sequence[str], where: str, what: str) -> None:
    for name in names:
        if name not in valid:
            raise ValueError(f"{where}: {name!r} is not in {what}{suggest(name, valid)}; there are {', '.join(valid)}")


def _list_data(head: _Head) -> list[str]:
    """Data sets for which a row may have numbers and settings."""
    return [*head.data, *([TOY] if head.kind == TOY and TOY not in head.data else [])]


def _expand_row(line: _Row, file: _File) -> Iterator[PublishedRow]:
    """The row itself, or one for each value of the axis."""
    head = file.table
    if not head.vary:
        yield _build_row(line, file, line.name, {}, _parse_numbers(line))
        return
    count = len(next(iter(head.vary.values())))
    for index in range(count):
        axis = {key: values[index] for key, values in head.vary.items()}
        name = f"{line.name}@{next(iter(axis.values()))}"
        yield _build_row(line, file, name, axis, _parse_numbers(line, index, count))


def _build_row(
    line: _Row, file: _File, name: str, axis: Settings, published: dict[str, dict[str, PublishedNumber]]
) -> PublishedRow:
    layers: dict[str, tuple[Settings, ...]] = {}
    if line.not_run is None:
        for data in _list_data(file.table):
            tables = (file.base, file.on.get(data, {}), line.settings, line.on.get(data, {}))
            axis_tables = (_nest(key, value) for key, value in axis.items())
            layers[data] = (*_build_head_settings(file.table, data), *tables, *axis_tables)
    return PublishedRow(
        name,
        line.label,
        published,
        line.quoted_on or line.quoted,
        line.not_run,
        tuple(line.caveats),
        next(iter(axis.values()), None),
        None if line.without is None else name.replace(line.name, line.without, 1),
        layers,
    )


def _build_head_settings(head: _Head, data: str) -> Iterator[Settings]:
    """Settings of every run from [table]: data set, protocol, metrics and selection."""
    if head.kind == TOY:
        return
    yield {"data": {"name": data, "protocol": head.protocol}, "evaluation": {"selection": head.selection}}
    metrics = [*dict.fromkeys(name for name in map(parse_metric, head.metrics) if name is not None)]
    if metrics:
        yield {"evaluation": {"metrics": metrics, "metric": metrics[0]}}


def _parse_numbers(line: _Row, index: int | None = None, count: int = 1) -> dict[str, dict[str, PublishedNumber]]:
    """The published numbers of a row, on a curve those at one of `count` points."""
    return {
        data: {
            metric: _parse_number(cell, index, count, f"row {line.name}, published.{data}, {metric}")
            for metric, cell in cells.items()
        }
        for data, cells in line.published.items()
    }


def _parse_number(cell: Any, index: int | None, count: int, where: str) -> PublishedNumber:
    if index is not None and cell != UNREADABLE:
        if not isinstance(cell, list) or len(cell) != count:
            raise ValueError(f"{where} must be {UNREADABLE!r} or a list of {count} values, got {cell!r}")
        cell = cell[index]
    if cell == UNREADABLE:
        return PublishedNumber(None)
    numbers = cell if isinstance(cell, list) else [cell]
    lengths = (2,) if isinstance(cell, list) else (1,)
    if len(numbers) not in lengths or not all(type(number) in (int, float, Decimal) for number in numbers):
        raise ValueError(f"{where} must be a number, [value, spread] or {UNREADABLE!r}, got {cell!r}")
    value, *spread = map(float, numbers)
    return PublishedNumber(value, spread[0] if spread else None, " ± ".join(map(str, numbers)))


def _with_floats(value: Any) -> Any:
    """A copy with floats for decimals, except in published numbers."""
    if isinstance(value, Mapping):
        return {key: inner if key == "published" else _with_floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_floats(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value


def _nest(key: str, value: Any) -> Settings:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)
