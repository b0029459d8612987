"""Tables of a TOML file to typed objects and back; a key that means nothing is an error that names the nearest."""

import inspect
import math
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from kinfold.files.documents import check_depth, read_toml, shorten
from kinfold.registry import names, resolve, suggest
from kinfold.registry.options import PLAIN, is_instance
from kinfold.training.config.settings import NamedConfig, RunConfig
from kinfold.training.defaults import default_embedding_length, default_learning_rate, default_miner

Kind = TypeVar("Kind")
Table = Mapping[str, Any]
AUTO = "auto"
LARGEST = 1 << 63  # of whole numbers
OPTIONAL = ("miner",)  # named things that a run may do without


def read_tables(path: Path | str) -> dict[str, Any]:
    """The tables of a TOML file, as they stand."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no recipe {path}")
    return read_toml(path)


def configure(tables: Table, changes: Sequence[str] = ()) -> RunConfig:
    """A checked configuration from tables, after changes such as "loss.k=160"; the miner "none" is none; "auto" as
    the miner, the learning rate or the length of the start is the usual one of the loss.

    >>> configure({"loss": {"name": "dro-topk"}}, ["loss.k=160", "training.steps=5"]).loss
    Choice(name='dro-topk', options={'k': 160})
    >>> configure({"loss": {"name": "margin"}, "miner": {"name": "auto"}}).miner
    Choice(name='distance-weighted', options={})
    """
    given = apply_changes(tables, changes)
    if _is_auto(given.get("miner")):
        _resolve_miner(given)
    _resolve_numbers(given)
    for name in OPTIONAL:
        if isinstance(given.get(name), dict) and given[name].get("name") == "none":
            del given[name]
    return parse_change(RunConfig, given, "")


def _is_auto(miner: Any) -> bool:
    return isinstance(miner, Mapping) and miner.get("name") == AUTO


def _resolve_miner(given: dict[str, Any]) -> None:
    """Replace the miner "auto" by the usual one of the loss, or by none."""
    options = {key: value for key, value in given.pop("miner").items() if key != "name"}
    loss = _name(given) or RunConfig().loss.name
    miner = default_miner(loss, given.get("loss"))
    if miner is None and options:
        raise ValueError(
            f"[miner] has {', '.join(options)}, and the loss {loss!r} has no usual miner that takes it: name a miner, "
            "or leave the options out"
        )
    if miner is not None:
        given["miner"] = {"name": miner, **options}


def _resolve_numbers(given: dict[str, Any]) -> None:
    """Replace the learning rate "auto" and the length "auto" of the start by the usual ones of the loss."""
    loss = _name(given) or RunConfig().loss.name
    model, optimizer = given.get("model"), given.get("optimizer")
    if isinstance(model, dict) and model.get("init_length") == AUTO:
        model["init_length"] = default_embedding_length(loss)
    if isinstance(optimizer, dict) and optimizer.get("lr") == AUTO:
        if not (isinstance(model, Mapping) and model.get("standardize")):
            raise ValueError(
                'optimizer.lr = "auto" is a rate for standardized features: set model.standardize = true, or give a '
                "number"
            )
        optimizer["lr"] = default_learning_rate(loss)


def apply_changes(tables: Table, changes: Sequence[str]) -> dict[str, Any]:
    """A copy of the tables with values replaced; values are written as in TOML, words may stand without quotes."""
    result: dict[str, Any] = _copy(tables)
    mined = any(change.partition("=")[0].strip().startswith("miner.") for change in changes)
    # names first: another loss or miner begins without the options of the one before, and a loss without its miner;
    # another sampler keeps what it also has, such as the size of a batch
    for change in sorted(changes, key=lambda change: not change.partition("=")[0].strip().endswith(".name")):
        key, equals, written = change.partition("=")
        path = [part.strip() for part in key.split(".")]
        if not equals or not all(path):
            raise ValueError(f"a change looks like loss.k=160, got {change!r}")
        place = result
        for part in path[:-1]:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{change!r}: {part!r} is a value, not a table")
            place = inner
        name = written.strip(" \"'")
        if path in (["loss", "name"], ["miner", "name"]) and place.get("name") != name:
            if path[0] == "loss" and not mined and not _is_auto(result.get("miner")):
                result.pop("miner", None)
            place.clear()
        if path == ["sampler", "name"] and place.get("name") != name:
            for option in {*place} - _options("samplers", name):
                del place[option]
        if written.strip() != "none":
            place[path[-1]] = _value(written)
        elif path[-1] == "name" and path[0] in OPTIONAL:
            result.pop(path[0])  # without a name there is no miner
        else:
            place.pop(path[-1], None)
    return result


def _options(kind: str, name: str) -> set[str]:
    """What something takes; nothing where there is no such name, which is told elsewhere."""
    return set(inspect.signature(resolve(kind, name)).parameters) if name in names(kind) else set()


def merge_tables(*layers: Table) -> dict[str, Any]:
    """Tables over one another, the last on top: keys are merged, a table with another `name` replaces the one below,
    and another loss is not given the miner of the one it replaces.

    >>> combined({"loss": {"name": "dro-topk", "k": 160}}, {"loss": {"k": 80}}, {"seed": 1})
    {'loss': {'name': 'dro-topk', 'k': 80}, 'seed': 1}
    >>> combined({"loss": {"name": "dro-topk", "k": 160}}, {"loss": {"name": "margin"}})
    {'loss': {'name': 'margin'}}
    >>> combined({"loss": {"name": "margin"}, "miner": {"name": "distance-weighted"}}, {"loss": {"name": "lifted"}})
    {'loss': {'name': 'lifted'}}
    """
    result: dict[str, Any] = {}
    for layer in layers:
        inherited = "miner" not in layer and not _is_auto(result.get("miner"))
        if inherited and _name(layer) not in (None, _name(result)):
            result.pop("miner", None)
        for key, value in layer.items():
            below = result.get(key)
            if (
                isinstance(value, Mapping)
                and isinstance(below, dict)
                and value.get("name") in (None, below.get("name"))
            ):
                result[key] = merge_tables(below, value)
            else:
                result[key] = _copy(value)
    return result


def _name(layer: Table) -> Any:
    """The name of the loss in these tables, where there is one."""
    loss = layer.get("loss")
    return loss.get("name") if isinstance(loss, Mapping) else None


def parse_change(kind: type[Kind], table: Any, where: str) -> Kind:
    """A dataclass from a table, every key known and every value of its type."""
    if not isinstance(table, Mapping):
        raise ValueError(f"[{where}] must be a table, got {table!r}")
    if kind is NamedConfig:
        if not isinstance(table.get("name"), str):
            raise ValueError(f'[{where}] needs a name, as in name = "..."')
        return kind(table["name"], {key: _copy(value) for key, value in table.items() if key != "name"})  # type: ignore[call-arg]
    known = {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for key in table:
        if key not in known:
            place = f"in [{where}]" if where else "at the top"
            near = suggest(key, known) or _elsewhere(key, hints)
            raise ValueError(f"unknown key {key!r} {place}{near}; there are {', '.join(known)}")
    required = [n for n, e in known.items() if e.default is MISSING and e.default_factory is MISSING and n not in table]
    if required:
        raise ValueError(f"[{where}] needs {', '.join(required)}")
    return kind(**{key: _typed(hints[key], value, f"{where}.{key}" if where else key) for key, value in table.items()})


def _elsewhere(key: str, hints: dict[str, Any]) -> str:
    """Where a key that does not stand here may have been meant to stand."""
    if "options" in hints:
        return " (what the data set itself takes stands in options, as in --set data.options.columns.label=species)"
    inner = {name: fields(hint) for name, hint in hints.items() if is_dataclass(hint)}
    found = [f"{name}.{key}" for name, entries in inner.items() if key in {entry.name for entry in entries}]
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def to_tables(configuration: Any) -> dict[str, Any]:
    """The inverse of `parse`; what is None is left out."""
    if isinstance(configuration, NamedConfig):
        return {"name": configuration.name, **configuration.options}
    found = {entry.name: getattr(configuration, entry.name) for entry in fields(configuration)}
    return {
        key: to_tables(value) if is_dataclass(value) else value for key, value in found.items() if value is not None
    }


def to_toml(table: Table) -> str:
    """The text of a TOML file with these values."""
    lines: list[str] = []
    _emit(table, [], lines)
    return "\n".join(lines).strip() + "\n"


def _emit(table: Table, path: list[str], lines: list[str]) -> None:
    if path:
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    for key, value in table.items():
        if not isinstance(value, Mapping):
            lines.append(f"{_key(key)} = {_literal(value)}")
    for key, value in table.items():
        if isinstance(value, Mapping) and (value or not path):
            _emit(value, [*path, key], lines)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_literal, value)) + "]"
    raise ValueError(f"{value!r} cannot stand in a recipe; use numbers, words, lists and tables")


def _key(word: str) -> str:
    plain = word and all(c.isascii() and (c.isalnum() or c in "-_") for c in word)
    return word if plain else _literal(word)


def _value(written: str) -> Any:
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except RecursionError:
        raise ValueError(f"a value is nested too deep: {shorten(written)}") from None
    except ValueError:  # no TOML: a string without quotes
        return written.strip()
    check_depth(value, "a value given on the command line")
    return value


def _typed(hint: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (entry for entry in inner if entry is not type(None))
        return _typed(hint, value, where)
    if origin is Literal:
        if value not in inner:
            near = suggest(str(value), inner)
            raise ValueError(f"{where} is {', '.join(map(repr, inner))}; got {value!r}{near}")
        return value
    if is_dataclass(hint) and isinstance(hint, type):
        return parse_change(hint, value, where)
    if origin is dict and isinstance(value, Mapping):
        return _copy(value)
    if origin is list and isinstance(value, list):
        return [_typed(inner[0], entry, where) for entry in value]
    if hint in PLAIN and is_instance(value, hint):
        return _number(hint, value, where) if hint in (int, float) else value
    wanted = PLAIN[hint][1] if hint in PLAIN else "a list" if origin is list else "a table"
    raise ValueError(f"{where} must be {wanted}, got {value!r}")


def _number(hint: Any, value: Any, where: str) -> int | float:
    """A finite number, not larger than computers count."""
    try:
        number: int | float = hint(value)
    except OverflowError:
        number = float("inf")
    if not math.isfinite(number):
        raise ValueError(f"{where} must be a finite number, got {shorten(value)}")
    if hint is int and not -LARGEST <= number < LARGEST:
        raise ValueError(f"{where} must be a whole number of 64 bits, got {shorten(value)}")
    return number


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
