"""TOML tables to typed settings and back. An unknown key is an error that names the nearest valid one."""

import inspect
import json
import math
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tomli_w

from kinfold.files.documents import check_depth, read_toml, shorten
from kinfold.files.paths import describe_missing
from kinfold.registry import names, resolve, suggest
from kinfold.registry.options import PLAIN, is_instance
from kinfold.training.config.defaults import (
    default_embedding_length,
    default_image_size,
    default_learning_rates,
    default_miner,
    network_kind,
)
from kinfold.training.config.settings import NamedConfig, RunConfig

Settings = TypeVar("Settings")
Table = Mapping[str, Any]
AUTO = "auto"
OPTIONAL = ("miner",)  # tables with a name that a run can do without
_INT64 = 1 << 63


def read_tables(path: Path | str) -> dict[str, Any]:
    """Read the tables of a TOML recipe without checking their keys.

    Raises:
        ValueError: There is no such file, or it is not TOML.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(describe_missing(path, "recipe"))
    return read_toml(path)


def configure(tables: Table, changes: Sequence[str] = ()) -> RunConfig:
    """Build a checked configuration from the tables of a recipe.

    The miner "none" is no miner. "auto" as miner, optimizer.lr, model.init_length or data.size is the default of the
    loss, the network or the device.

    Args:
        tables: Tables as in a TOML file.
        changes: Changes such as "loss.k=160", applied first.

    Returns:
        The configuration.

    Raises:
        ValueError: A key is unknown, or a value is wrong.

    Examples:
        >>> configure({"loss": {"name": "dro-topk"}}, ["loss.k=160", "training.steps=5"]).loss
        NamedConfig(name='dro-topk', options={'k': 160})
        >>> configure({"loss": {"name": "margin"}, "miner": {"name": "auto"}}).miner
        NamedConfig(name='distance-weighted', options={})
    """
    changed = apply_changes(tables, changes)
    if _is_auto(changed.get("miner")):
        _resolve_miner(changed)
    _resolve_numbers(changed)
    for name in OPTIONAL:
        if isinstance(changed.get(name), dict) and changed[name].get("name") == "none":
            del changed[name]
    return parse_table(RunConfig, changed, "")


def _is_auto(miner: Any) -> bool:
    return isinstance(miner, Mapping) and miner.get("name") == AUTO


def _resolve_miner(tables: dict[str, Any]) -> None:
    """Replace the miner "auto" by the default of the loss, or by none."""
    options = {key: value for key, value in tables.pop("miner").items() if key != "name"}
    loss = _get_loss_name(tables) or RunConfig().loss.name
    miner = default_miner(loss, tables.get("loss"))
    if miner is None and options:
        raise ValueError(
            f"[miner] has {', '.join(options)}, and the loss {loss!r} has no default miner that takes it: name a "
            "miner, or leave the options out"
        )
    if miner is not None:
        tables["miner"] = {"name": miner, **options}


def _resolve_numbers(tables: dict[str, Any]) -> None:
    """Replace "auto" as learning rate, as initial embedding length and as size of images by the defaults."""
    data, training = tables.get("data"), tables.get("training")
    if isinstance(data, dict) and data.get("size") == AUTO:
        device = training.get("device", AUTO) if isinstance(training, Mapping) else AUTO
        size = default_image_size(device)
        data.update({"size": size} if size is not None else {})
        if size is None:
            del data["size"]
    loss = _get_loss_name(tables) or RunConfig().loss.name
    model, optimizer = tables.get("model"), tables.get("optimizer")
    if isinstance(model, dict) and model.get("init_length") == AUTO:
        model["init_length"] = default_embedding_length(loss)
    if isinstance(optimizer, dict):
        _resolve_learning_rates(optimizer, loss, model if isinstance(model, Mapping) else {})


def _resolve_learning_rates(optimizer: dict[str, Any], loss: str, model: Table) -> None:
    """Replace "auto" as learning rate of backbone or head by the default of the loss and the network."""
    automatic = [name for name in ("lr", "head_lr") if optimizer.get(name) == AUTO]
    if not automatic:
        return
    kind = network_kind(model)
    if kind is None:
        backbone = model.get("backbone", AUTO)
        if backbone != AUTO and "/" not in str(backbone):  # with "/" it is a model of another library
            resolve("backbones", backbone)  # raises for a misspelled name
        raise ValueError(
            f'optimizer.{automatic[0]} = "auto" is a rate for standardized features (model.standardize = true), for '
            "the backbone conv4, and for backbones with model.weights: give a number"
        )
    if optimizer.get("name") in ("sgd", "rmsprop"):
        raise ValueError(
            f'optimizer.{automatic[0]} = "auto" is a rate for adam and adamw: give a number for {optimizer["name"]}'
        )
    rates = dict(zip(("lr", "head_lr"), default_learning_rates(loss, kind), strict=True))
    optimizer.update({name: rates[name] for name in automatic})


def apply_changes(tables: Table, changes: Sequence[str]) -> dict[str, Any]:
    """Return a copy of the tables with some values replaced.

    Another loss or miner starts without the options of the one before, and another loss without its miner. Another
    sampler keeps the options that it has too, such as the batch size.

    Args:
        tables: The tables of a recipe.
        changes: Such as "loss.k=160". Values are TOML; strings need no quotes. "none" removes a value.

    Raises:
        ValueError: A change is malformed.
    """
    result: dict[str, Any] = _copy(tables)
    changes_miner = any(change.partition("=")[0].strip().startswith("miner.") for change in changes)
    # names first, because they reset the options
    for change in sorted(changes, key=lambda change: not change.partition("=")[0].strip().endswith(".name")):
        key, equals, text = change.partition("=")
        path = [part.strip() for part in key.split(".")]
        if not equals or not all(path):
            raise ValueError(f"a change looks like loss.k=160, got {change!r}")
        table = result
        for part in path[:-1]:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{change!r}: {part!r} is a value, not a table")
            table = inner
        name = text.strip(" \"'")
        if path in (["loss", "name"], ["miner", "name"]) and table.get("name") != name:
            if path[0] == "loss" and not changes_miner and not _is_auto(result.get("miner")):
                result.pop("miner", None)
            table.clear()
        if path == ["sampler", "name"] and table.get("name") != name:
            for option in {*table} - _list_options("samplers", name):
                del table[option]
        if text.strip() != "none":
            table[path[-1]] = _parse_value(text)
        elif path[-1] == "name" and path[0] in OPTIONAL:
            result.pop(path[0])
        else:
            table.pop(path[-1], None)
    return result


def _list_options(kind: str, name: str) -> set[str]:
    """Return the options of a registered name; none where the name is unknown, which is reported elsewhere."""
    return set(inspect.signature(resolve(kind, name)).parameters) if name in names(kind) else set()


def merge_tables(*layers: Table) -> dict[str, Any]:
    """Merge tables key by key; later ones win.

    A table with another `name` replaces the one below it, whose options are those of its name; but settings of data
    without a name are kept. Another loss drops the miner of the one it replaces.

    Examples:
        >>> merge_tables({"loss": {"name": "dro-topk", "k": 160}}, {"loss": {"k": 80}}, {"seed": 1})
        {'loss': {'name': 'dro-topk', 'k': 80}, 'seed': 1}
        >>> merge_tables({"loss": {"name": "dro-topk", "k": 160}}, {"loss": {"name": "margin"}})
        {'loss': {'name': 'margin'}}
        >>> merge_tables({"data": {"validation": 0.25}}, {"data": {"name": "glyphs"}})
        {'data': {'validation': 0.25, 'name': 'glyphs'}}
        >>> merge_tables({"loss": {"name": "margin"}, "miner": {"name": "hard"}}, {"loss": {"name": "lifted"}})
        {'loss': {'name': 'lifted'}}
    """
    result: dict[str, Any] = {}
    for layer in layers:
        drops_miner = "miner" not in layer and not _is_auto(result.get("miner"))
        if drops_miner and _get_loss_name(layer) not in (None, _get_loss_name(result)):
            result.pop("miner", None)
        for key, value in layer.items():
            below = result.get(key)
            if (
                isinstance(value, Mapping)
                and isinstance(below, dict)
                and (value.get("name") in (None, below.get("name")) or (key == "data" and "name" not in below))
            ):
                result[key] = merge_tables(below, value)
            else:
                result[key] = _copy(value)
    return result


def _get_loss_name(tables: Table) -> Any:
    loss = tables.get("loss")
    return loss.get("name") if isinstance(loss, Mapping) else None


def parse_table(kind: type[Settings], table: Any, path: str) -> Settings:
    """Build a dataclass from a table.

    Args:
        kind: The dataclass.
        table: Its fields as keys.
        path: Where the table stands in the file, for error messages; "" for the top.

    Raises:
        ValueError: A key is unknown or missing, or a value has the wrong type.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"[{path}] must be a table, got {table!r}")
    if kind is NamedConfig:
        if not isinstance(table.get("name"), str):
            raise ValueError(f'[{path}] needs a name, as in name = "..."')
        return kind(table["name"], {key: _copy(value) for key, value in table.items() if key != "name"})  # type: ignore[call-arg]
    entries = {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for key in table:
        if key not in entries:
            position = f"in [{path}]" if path else "at the top"
            hint = _suggest_tables(key, hints) or suggest(key, entries)
            if not hint and "options" in hints:
                hint = " (options of the dataset belong in options, as in --set data.options.columns.label=species)"
            raise ValueError(f"unknown key {key!r} {position}{hint}; there are {', '.join(entries)}")
    missing = [
        n for n, e in entries.items() if e.default is MISSING and e.default_factory is MISSING and n not in table
    ]
    if missing:
        raise ValueError(f"{f'[{path}]' if path else 'the file'} needs {', '.join(missing)}")
    return kind(**{key: _convert(hints[key], value, f"{path}.{key}" if path else key) for key, value in table.items()})


def find_setting(key: str) -> str | None:
    """Return the setting of a recipe that ends with this key, or None.

    Examples:
        >>> [find_setting(key) for key in ("lr", "batch_size", "marign")]
        ['optimizer.lr', 'sampler.batch_size', None]
    """
    if key in _list_options("samplers", "spc"):
        return f"sampler.{key}"
    for name, hint in get_type_hints(RunConfig).items():
        if is_dataclass(hint) and key in {entry.name for entry in fields(hint)}:
            return f"{name}.{key}"
    return None


def _suggest_tables(key: str, hints: dict[str, Any]) -> str:
    """Name the tables in which an unknown key would be valid."""
    inner = {name: fields(hint) for name, hint in hints.items() if is_dataclass(hint)}
    matches = [f"{name}.{key}" for name, entries in inner.items() if key in {entry.name for entry in entries}]
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


def to_tables(settings: Any) -> dict[str, Any]:
    """Return settings as tables, the inverse of `parse_table`; None values are left out."""
    if isinstance(settings, NamedConfig):
        return {"name": settings.name, **settings.options}
    values = {entry.name: getattr(settings, entry.name) for entry in fields(settings)}
    return {
        key: to_tables(value) if is_dataclass(value) else value for key, value in values.items() if value is not None
    }


def to_toml(table: Table) -> str:
    """Write tables as the text of a TOML file.

    Raises:
        ValueError: A value has no place in a TOML file.
    """
    try:
        return tomli_w.dumps(table)
    except TypeError as error:
        raise ValueError(f"{error}; use numbers, strings, lists and tables") from None


def _parse_value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except RecursionError:
        raise ValueError(f"a value is nested too deep: {shorten(text)}") from None
    except ValueError:  # not TOML: a string without quotes
        return text.strip()
    check_depth(value, "a value given on the command line")
    return value


def _convert(hint: Any, value: Any, name: str) -> Any:
    """Return the value as the type that the hint asks for."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        entries = [entry for entry in inner if entry is not type(None)]
        is_table = isinstance(value, Mapping)  # a name or a table, such as evaluation.distance
        chosen = next((entry for entry in entries if (get_origin(entry) is dict) == is_table), entries[0])
        return _convert(chosen, value, name)
    if origin is Literal:
        if value not in inner:
            near = suggest(str(value), inner)
            raise ValueError(f"{name} must be one of {', '.join(map(repr, inner))}; got {value!r}{near}")
        return value
    if is_dataclass(hint) and isinstance(hint, type):
        return parse_table(hint, value, name)
    if origin is dict and isinstance(value, Mapping):
        return _copy(value)
    if origin is list and isinstance(value, list):
        return [_convert(inner[0], entry, name) for entry in value]
    if hint in PLAIN and is_instance(value, hint):
        return _convert_number(hint, value, name) if hint in (int, float) else value
    expected = PLAIN[hint][1] if hint in PLAIN else "a list" if origin is list else "a table"
    if origin is list:
        expected += f", as in [{json.dumps(value)}]" if isinstance(value, str | int | float) else ""
    raise ValueError(f"{name} must be {expected}, got {value!r}")


def _convert_number(hint: Any, value: Any, name: str) -> int | float:
    try:
        number: int | float = hint(value)
    except OverflowError:
        number = float("inf")
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {shorten(value)}")
    if hint is int and not -_INT64 <= number < _INT64:
        raise ValueError(f"{name} must be a 64-bit integer, got {shorten(value)}")
    return number


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
