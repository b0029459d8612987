"""Search space: the values that a search may try, from the table `search` of a recipe."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kinfold.registry import suggest

KEYS = ("values", "low", "high", "log", "int")


@dataclass(frozen=True)
class Categorical:
    """One of several values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A number between two bounds.

    Attributes:
        low: Lower bound.
        high: Upper bound.
        log: Draw uniformly on a logarithmic scale.
        integer: Draw integers.
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False


def parse_search_space(table: Mapping[str, Any]) -> dict[str, Categorical | Range]:
    """Parse and check the table `search` of a recipe.

    Examples:
        >>> table = {"optimizer.lr": {"low": 1e-5, "high": 1e-2, "log": True}, "loss.k": {"values": [160, 200]}}
        >>> parse_search_space(table)["loss.k"]
        Categorical(values=(160, 200))
    """
    return {name: _parse_entry(name, entry) for name, entry in table.items()}


def list_corners(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List settings in which every value and every bound occurs once, to check that a recipe accepts them.

    Examples:
        >>> settings = {"optimizer.lr": {"low": 0.1, "high": 0.2}, "loss.k": {"values": [160, 200, 240]}}
        >>> for values in list_corners(settings):
        ...     print(values)
        {'optimizer.lr': 0.1, 'loss.k': 160}
        {'optimizer.lr': 0.2, 'loss.k': 200}
        {'optimizer.lr': 0.2, 'loss.k': 240}
    """
    values = {
        name: entry.values if isinstance(entry, Categorical) else (entry.low, entry.high)
        for name, entry in parse_search_space(table).items()
    }
    count = max(map(len, values.values()), default=0)
    return [{name: each[min(index, len(each) - 1)] for name, each in values.items()} for index in range(count)]


def _parse_entry(name: str, entry: Any) -> Categorical | Range:
    example = f'write "{name}" = {{low = 1e-5, high = 1e-2, log = true}}, or = {{values = [1, 2]}}'
    if not isinstance(entry, Mapping):
        raise ValueError(f"search: {name!r} must be a table, got {entry!r}; {example}")
    for key in entry:
        if key not in KEYS:
            raise ValueError(f"search: {name!r} has no key {key!r}{suggest(key, KEYS)}; {example}")
    if "values" in entry:
        if set(entry) != {"values"} or not isinstance(entry["values"], list) or not entry["values"]:
            raise ValueError(f"search: {name!r}: values must be a non-empty list and the only key; {example}")
        return Categorical(tuple(entry["values"]))
    low, high, log = entry.get("low"), entry.get("high"), entry.get("log", False)
    integer = entry.get("int", False)
    for switch in (log, integer):
        if not isinstance(switch, bool):
            raise ValueError(f"search: {name!r}: log and int are true or false, got {switch!r}; {example}")
    numbers = all(type(value) in ((int,) if integer else (int, float)) for value in (low, high))
    if not numbers or low is None or high is None or not low < high or not math.isfinite(high - low):
        raise ValueError(f"search: {name!r} needs two {'integers' if integer else 'numbers'} low < high; {example}")
    if log and low <= 0:
        raise ValueError(f"search: {name!r} is logarithmic: low must be above 0, got {low}")
    return Range(low, high, bool(log), bool(integer))
