"""Checked reading and writing of JSON and TOML files.

A file may be damaged or come from another person. Whatever it contains, reading returns values of the shape that the
caller described, or raises a ValueError that names the file and the expected value.
"""

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from kinfold.files.atomic import write_json
from kinfold.files.checksums import compute_sha256
from kinfold.files.paths import read_bytes

MAX_DEPTH = 100  # of nested tables and lists; files of kinfold have less than 40
MAX_BYTES = 1 << 28  # of a document
CHECKSUM_KEY = "sha256"  # the key of the checksum of a result
_INT64 = 1 << 63

Shape = Any
"""Description of a value.

- `str`, `bool`, `None`: a value of this type. `int`: an integer of 64 bits. `float`: a finite number.
- `object`: anything.
- `IntegerRange(low, high)`: an integer of this range. A compiled pattern: a string that matches it completely.
- `(a, b)`: one of these shapes. `[a]`: a list of a. `{str: a}`: a table with values of shape a.
- `{"key": a, "other?": b}`: a table with these keys, those with a question mark optional; it may have more keys.
"""


@dataclass(frozen=True)
class IntegerRange:
    """The shape of an integer from `low` to `high`, both included."""

    low: int
    high: int


def read_json(path: Path, shape: Shape, within: Path | None = None) -> Any:
    """Read a JSON file and check its value.

    Args:
        path: The file.
        shape: What the value must look like; see `Shape`.
        within: A folder; no link is followed below it.

    Raises:
        ValueError: The file is missing, damaged, or has another shape; the message names it.
    """
    return parse_json(_read_document(path, within), shape, path)


def parse_json(content: bytes, shape: Shape, source: Path) -> Any:
    """Parse JSON and check its value as `read_json` does; error messages name `source`."""
    value = _parse(content, json.loads, "JSON", source)
    check_shape(value, shape, source)
    return value


def read_toml(path: Path, within: Path | None = None) -> dict[str, Any]:
    """Read a TOML file; a ValueError names a file that is missing or not valid."""
    tables: dict[str, Any] = _parse(_read_document(path, within), tomllib.loads, "TOML", path)
    return tables


def write_result(path: Path, table: Mapping[str, Any], within: Path | None = None) -> None:
    """Write a table of results as JSON with its sha256 as the last entry, which `read_result` checks."""
    rest = {key: value for key, value in table.items() if key != CHECKSUM_KEY}
    write_json(path, {**rest, CHECKSUM_KEY: _compute_checksum(rest)}, within)


def read_result(path: Path, shape: Shape, within: Path | None = None) -> dict[str, Any]:
    """Read what `write_result` wrote, and check it.

    Args:
        path: The file.
        shape: What the table must look like; see `Shape`.
        within: A folder; no link is followed below it.

    Returns:
        The table without its checksum.

    Raises:
        ValueError: The file is missing or malformed, has no checksum, or has changed since it was written.
    """
    table: dict[str, Any] = read_json(path, {str: object}, within)
    check_shape(table, shape, path)
    recorded = table.pop(CHECKSUM_KEY, None)
    if recorded is None:
        raise ValueError(
            f"{path} has no checksum: an earlier version of kinfold wrote it, or it is damaged. Write it again with "
            "this version, in another folder"
        )
    if recorded != _compute_checksum(table):
        raise ValueError(f"{path} is damaged: its contents are not what was written (sha256 differs). Write it again")
    return table


def check_shape(value: Any, shape: Shape, source: Path | str, where: str = "") -> None:
    """Raise a ValueError if a value does not have the described shape.

    Args:
        value: The value.
        shape: See `Shape`.
        source: The file, for the error message.
        where: The position of the value inside of the file, such as `rows[2].name`.
    """
    subject = f"{source} is damaged: {where or 'it'}"
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{subject} must be a table, got {shorten(value)}")
        if set(shape) == {str}:
            for key, inner in value.items():
                check_shape(inner, shape[str], source, _below(where, key))
            return
        for key, inner in shape.items():
            name = key.removesuffix("?")
            if name in value:
                check_shape(value[name], inner, source, _below(where, name))
            elif name == key:
                raise ValueError(f"{subject} has no {name!r}; it was truncated, edited or is a file of another kind")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{subject} must be a list, got {shorten(value)}")
        for number, inner in enumerate(value):
            check_shape(inner, shape[0], source, f"{where}[{number}]")
    elif isinstance(shape, tuple):
        if not any(_fits(value, one) for one in shape):
            _check_containers(value, shape, source, where)
            raise ValueError(f"{subject} must be {_describe_shape(shape)}, got {shorten(value)}")
    elif not _fits(value, shape):
        raise ValueError(f"{subject} must be {_describe_shape(shape)}, got {shorten(value)}")


def _check_containers(value: Any, shapes: tuple[Shape, ...], source: Path | str, where: str) -> None:
    """Report the error inside of a table or list if one of the alternatives is a table or list too."""
    for shape in shapes:
        if isinstance(shape, dict | list) and isinstance(value, type(shape)):
            check_shape(value, shape, source, where)


def shorten(value: Any) -> str:
    """Describe a value in one short line for an error message."""
    if isinstance(value, dict | list):
        return f"a {'table' if isinstance(value, dict) else 'list'} of {len(value):,}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _INT64:
        return "a number of more than 64 bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_depth(value: Any, source: Path | str) -> None:
    """Raise a ValueError if tables and lists are nested more than `MAX_DEPTH` deep."""
    level = [entry for entry in [value] if isinstance(entry, dict | list)]
    for _ in range(MAX_DEPTH):
        inner = (below for entry in level for below in (entry.values() if isinstance(entry, dict) else entry))
        level = [entry for entry in inner if isinstance(entry, dict | list)]
    if level:
        raise ValueError(f"{source} is damaged: its tables and lists are more than {MAX_DEPTH} deep")


def read_content(path: Path, within: Path | None) -> bytes:
    """Read the bytes of a file that must exist.

    Raises:
        ValueError: The file is missing or cannot be read; the message names it.
    """
    try:
        return read_bytes(path, within)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def _read_document(path: Path, within: Path | None) -> bytes:
    content = read_content(path, within)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path} is too large for a file of kinfold: {len(content):,} bytes")
    return content


def _parse(content: bytes, load: Callable[[str], Any], kind: str, source: Path) -> Any:
    try:
        value = load(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{source} is not a text file; give a .{kind.lower()} file") from None
    except RecursionError:
        raise ValueError(f"{source} is damaged: its tables and lists are more than {MAX_DEPTH} deep") from None
    except ValueError as error:  # from the parsers, and from Python for a number of thousands of digits
        raise ValueError(f"{source} is not valid {kind}: {error}") from None
    check_depth(value, source)
    return value


def _fits(value: Any, shape: Shape) -> bool:
    if isinstance(shape, tuple | list | dict):
        try:
            check_shape(value, shape, "")
        except ValueError:
            return False
        return True
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    if isinstance(shape, IntegerRange):
        return _fits(value, int) and shape.low <= value <= shape.high
    if shape is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
    if shape is float:
        return _fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    return shape is object or isinstance(value, NoneType if shape is None else shape)


def _describe_shape(shape: Shape) -> str:
    if isinstance(shape, tuple):
        return " or ".join(_describe_shape(one) for one in shape)
    if isinstance(shape, IntegerRange):
        return f"an integer from {shape.low} to {shape.high}"
    if isinstance(shape, re.Pattern):
        return f"a string like {shape.pattern}"
    if isinstance(shape, dict | list):
        return "a table" if isinstance(shape, dict) else "a list"
    names = {str: "a string", bool: "true or false", int: "an integer", float: "a finite number", None: "null"}
    return names[shape]


def _below(where: str, key: str) -> str:
    name = key if key.isprintable() and len(key) <= 60 else f"{key[:60]!r}"
    return f"{where}.{name}" if where else name


def _compute_checksum(table: Mapping[str, Any]) -> str:
    """Return the sha256 of the values; spacing and the order of keys do not matter."""
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    return compute_sha256(text.encode())


def nan_to_null(value: Any) -> Any:
    """Replace NaN and infinities by None, in lists and dictionaries too, because JSON has neither."""
    if isinstance(value, dict):
        return {key: nan_to_null(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_null(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def null_to_nan(value: float | None) -> float:
    """Return a number of a JSON file, NaN for null."""
    return math.nan if value is None else value
