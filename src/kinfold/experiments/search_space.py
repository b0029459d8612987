"""What a search may change: values by name, as the table `search` of a recipe writes them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kinfold.registry import suggest

KEYS = ("values", "low", "high", "log", "int")


@dataclass(frozen=True)
class Categorical:
    """One of these."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A number from low to high, drawn evenly on a logarithmic scale with `log`; a whole one with `whole`."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


def parse_search_space(table: Mapping[str, Any]) -> dict[str, Categorical | Range]:
    """The table, checked.

    >>> space({"optimizer.lr": {"low": 1e-5, "high": 1e-2, "log": True}, "loss.k": {"values": [160, 200]}})["loss.k"]
    Choices(values=(160, 200))
    """
    return {name: _entry(name, entry) for name, entry in table.items()}


def list_corners(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The table, checked, and from it settings to try whether a recipe takes them: every value once.

    >>> corners({"optimizer.lr": {"low": 0.1, "high": 0.2}, "loss.k": {"values": [160, 200, 240]}})
    [{'optimizer.lr': 0.1, 'loss.k': 160}, {'optimizer.lr': 0.2, 'loss.k': 200}, {'optimizer.lr': 0.2, 'loss.k': 240}]
    """
    values = {
        name: entry.values if isinstance(entry, Categorical) else (entry.low, entry.high)
        for name, entry in parse_search_space(table).items()
    }
    count = max(map(len, values.values()), default=0)
    return [{name: each[min(place, len(each) - 1)] for name, each in values.items()} for place in range(count)]


def _entry(name: str, entry: Any) -> Categorical | Range:
    example = f'write "{name}" = {{low = 1e-5, high = 1e-2, log = true}}, or = {{values = [1, 2]}}'
    if not isinstance(entry, Mapping):
        raise ValueError(f"search: {name!r} must be a table, got {entry!r}; {example}")
    for key in entry:
        if key not in KEYS:
            raise ValueError(f"search: {name!r} has no key {key!r}{suggest(key, KEYS)}; {example}")
    if "values" in entry:
        if set(entry) != {"values"} or not isinstance(entry["values"], list) or not entry["values"]:
            raise ValueError(f"search: {name!r} has values, which must be a list and stand alone; {example}")
        return Categorical(tuple(entry["values"]))
    low, high, log = entry.get("low"), entry.get("high"), entry.get("log", False)
    whole = entry.get("int", False)
    for switch in (log, whole):
        if not isinstance(switch, bool):
            raise ValueError(f"search: {name!r}: log and int are true or false, got {switch!r}; {example}")
    numbers = all(type(value) in ((int,) if whole else (int, float)) for value in (low, high))
    if not numbers or low is None or high is None or not low < high or not math.isfinite(high - low):
        raise ValueError(f"search: {name!r} needs two numbers low < high{' (whole ones)' * bool(whole)}; {example}")
    if log and low <= 0:
        raise ValueError(f"search: {name!r} is logarithmic: low must be above 0, got {low}")
    return Range(low, high, bool(log), bool(whole))
