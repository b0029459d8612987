"""From the TOML file of a published table to a `Table`: every key known, every row's settings fit to be trained."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kinfold import registry
from kinfold.metrics.lookup import find_metric as known_metric
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
DRAWN = ("table", "space")  # kinds without an axis
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
    vary: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Line:
    """[[row]]"""

    name: str
    label: str
    published: dict[str, Any] = field(default_factory=dict)
    quoted: str | None = None
    caveats: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    on: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _File:
    table: _Head
    row: list[dict[str, Any]]
    base: dict[str, Any] = field(default_factory=dict)
    on: dict[str, Any] = field(default_factory=dict)


def table(name: str, tables: Mapping[str, Any]) -> PublishedTable:
    """The table that the tables of a TOML file describe; what is wrong is a ValueError that begins with the name.

    Published numbers may be decimals, which keep the digits that were printed; all other decimals become floats.
    """
    try:
        return _table(name, {key: _with_floats(value) for key, value in tables.items()})
    except ValueError as wrong:
        raise ValueError(f"{name}: {wrong}") from None


def measured(metric: str) -> str | None:
    """The metric of ours behind the name of a column; None where it is something else.

    >>> measured("precision@1 separated"), measured("seconds per step")
    ('precision@1', None)
    """
    for group in COLUMN_GROUPS:
        metric = metric.removesuffix(group)
    try:
        known_metric(metric)
    except ValueError:
        return None
    return metric


def _table(name: str, tables: Mapping[str, Any]) -> PublishedTable:
    given = parse_table(_File, tables, "")
    head = given.table
    _check_head(head)
    _check_among(given.on, head.data, "[on]", "table.data")
    lines = [
        parse_table(_Line, entry, f"row {entry.get('name', place)}") for place, entry in enumerate(given.row, start=1)
    ]
    for line in lines:
        _check_line(line, head)
        if sum(other.name == line.name for other in lines) > 1:
            raise ValueError(f"two rows are named {line.name!r}")
    rows = tuple(row for line in lines for row in _rows(line, given))
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
    )


def _check_head(head: _Head) -> None:
    if not head.metrics:
        raise ValueError("table.metrics names no column")
    if len({*head.metrics}) < len(head.metrics) or len({*head.data}) < len(head.data):
        raise ValueError("table.metrics and table.data name each thing once")
    if head.kind in ("table", "curve"):
        for metric in head.metrics:
            if measured(metric) is None:
                near = suggest(metric, registry.names("metrics"))
                raise ValueError(f"unknown metric {metric!r} in table.metrics{near}; kinfold.list('metrics') shows all")
    if head.kind != TOY:
        if head.protocol is None or head.selection is None or not head.data:
            raise ValueError('[table] needs data, protocol and selection, unless kind = "toy"')
        _check_among(head.data, registry.names("datasets"), "table.data", "the data sets")
    if head.kind == "curve" and not head.vary:
        raise ValueError("a curve needs [table.vary], its axis")
    if head.kind in DRAWN and head.vary:
        raise ValueError(f'[table.vary] is the axis of a curve, and kind = "{head.kind}" has none')
    lengths = {len(values) if isinstance(values, list) else 0 for values in head.vary.values()}
    if head.vary and (0 in lengths or len(lengths) > 1):
        raise ValueError("[table.vary] has lists of values, all of one length")


def _check_line(line: _Line, head: _Head) -> None:
    where = f"row {line.name}"
    if not re.fullmatch(r"[a-z0-9.]+(-[a-z0-9.]+)*", line.name):
        raise ValueError(f"a row is named in small letters, digits and hyphens, got {line.name!r}")
    if line.quoted is not None and (line.settings or line.on):
        raise ValueError(f"{where} is quoted and has settings: leave out the one or the other")
    if head.kind == TOY and line.quoted is None and not isinstance(line.settings.get(TOY), dict):
        raise ValueError(f"{where} of a toy needs [row.settings.toy]")
    _check_among(line.on, head.data, f"{where}, [row.on]", "table.data")
    _check_among(line.published, _places(head), f"{where}, published", "table.data")
    for data, cells in line.published.items():
        if not isinstance(cells, dict):
            raise ValueError(f"{where}, published.{data} must be a table of metrics, got {cells!r}")
        _check_among(cells, head.metrics, f"{where}, published.{data}", "table.metrics")


def _check_settings(row: PublishedRow, head: _Head) -> None:
    if head.kind == TOY:
        return
    for data in row.layers:
        try:
            configure(row.settings(data))
        except ValueError as wrong:
            raise ValueError(f"row {row.name} on {data}: {wrong}") from None


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


def _check_among(words: Iterable[str], known: Sequence[str], where: str, what: str) -> None:
    for word in words:
        if word not in known:
            raise ValueError(f"{where}: {word!r} is not in {what}{suggest(word, known)}; there are {', '.join(known)}")


def _places(head: _Head) -> list[str]:
    """What a row may have numbers and settings for."""
    return [*head.data, *([TOY] if head.kind == TOY and TOY not in head.data else [])]


def _rows(line: _Line, given: _File) -> Iterator[PublishedRow]:
    """The row itself, or one for each value of the axis."""
    head = given.table
    if not head.vary:
        yield _row(line, given, line.name, {}, _cells(line))
        return
    count = len(next(iter(head.vary.values())))
    for place in range(count):
        at = {key: values[place] for key, values in head.vary.items()}
        name = f"{line.name}@{next(iter(at.values()))}"
        yield _row(line, given, name, at, _cells(line, place, count))


def _row(
    line: _Line, given: _File, name: str, at: Settings, published: dict[str, dict[str, PublishedNumber]]
) -> PublishedRow:
    layers: dict[str, tuple[Settings, ...]] = {}
    if line.quoted is None:
        for data in _places(given.table):
            own = (given.base, given.on.get(data, {}), line.settings, line.on.get(data, {}))
            layers[data] = (*_from_head(given.table, data), *own, *(_nested(key, value) for key, value in at.items()))
    return PublishedRow(
        name, line.label, published, line.quoted, tuple(line.caveats), next(iter(at.values()), None), layers
    )


def _from_head(head: _Head, data: str) -> Iterator[Settings]:
    """What [table] says about every run: data set and protocol, what is measured and selected on."""
    if head.kind == TOY:
        return
    yield {"data": {"name": data, "protocol": head.protocol}, "evaluation": {"selection": head.selection}}
    metrics = [*dict.fromkeys(name for name in map(measured, head.metrics) if name is not None)]
    if metrics:
        yield {"evaluation": {"metrics": metrics, "metric": metrics[0]}}


def _cells(line: _Line, place: int | None = None, count: int = 1) -> dict[str, dict[str, PublishedNumber]]:
    """The published numbers of a row, on a curve those at one place of `count`."""
    return {
        data: {
            metric: _cell(cell, place, count, f"row {line.name}, published.{data}, {metric}")
            for metric, cell in cells.items()
        }
        for data, cells in line.published.items()
    }


def _cell(cell: Any, place: int | None, count: int, where: str) -> PublishedNumber:
    if place is not None and cell != UNREADABLE:
        if not isinstance(cell, list) or len(cell) != count:
            raise ValueError(f"{where} must be {UNREADABLE!r} or a list of {count} values, got {cell!r}")
        cell = cell[place]
    if cell == UNREADABLE:
        return PublishedNumber(None)
    numbers = cell if isinstance(cell, list) else [cell]
    lengths = (2,) if isinstance(cell, list) else (1,)
    if len(numbers) not in lengths or not all(type(number) in (int, float, Decimal) for number in numbers):
        raise ValueError(f"{where} must be a number, [value, spread] or {UNREADABLE!r}, got {cell!r}")
    value, *spread = map(float, numbers)
    return PublishedNumber(value, spread[0] if spread else None, " ± ".join(map(str, numbers)))


def _with_floats(value: Any) -> Any:
    """A copy with floats for decimals, except in what was published."""
    if isinstance(value, Mapping):
        return {key: inner if key == "published" else _with_floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_floats(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value


def _nested(key: str, value: Any) -> Settings:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)
