"""Computed values kept in the folder that they belong to, so that they are computed once."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kinfold.files.paths import check_path, make_folder
from kinfold.files.state import read_state, write_state

VERSION = 3  # part of every key; a new number invalidates all caches


def load_or_compute(
    folder: Path,
    name: str,
    key: str,
    compute: Callable[[], dict[str, Any]],
    on_write_error: Callable[[OSError], object] | None = None,
) -> dict[str, Any]:
    """Return the cached value if its key is the same; otherwise compute and cache it.

    The value is kept in `cache/NAME.safetensors` below the folder, with its checksum. A damaged file counts as missing.
    If the folder cannot be written to, the value is computed every time.

    Args:
        folder: The folder that the value belongs to, such as that of a run.
        name: The name of the cache file, without its extension. One name holds one value at a time.
        key: Everything that the value depends on, such as the checksum of the weights.
        compute: Returns the value: a dictionary of tensors, strings, numbers, lists and dictionaries.
        on_write_error: Called with the error where the value cannot be kept.

    Returns:
        The value.

    Raises:
        UnsafePathError: The cache file or its folder is a link.
    """
    value = load_cached(folder, name, key)
    if value is None:
        value = compute()
        store_cached(folder, name, key, value, on_write_error)
    return value


def load_cached(folder: Path, name: str, key: str) -> dict[str, Any] | None:
    """Return the value that `store_cached` kept; None where it is missing, damaged or of another key.

    Raises:
        UnsafePathError: The cache file or its folder is a link.
    """
    file = _locate(folder, name)
    with suppress(ValueError, OSError):
        entry = read_state(file, within=folder)
        if isinstance(entry, dict) and entry.get("key") == f"{VERSION} {key}" and isinstance(entry.get("value"), dict):
            value: dict[str, Any] = entry["value"]
            return value
    return None


def store_cached(
    folder: Path,
    name: str,
    key: str,
    value: dict[str, Any],
    on_write_error: Callable[[OSError], object] | None = None,
) -> None:
    """Keep a value in place of what has the same name; see `load_or_compute`.

    Raises:
        UnsafePathError: The cache file or its folder is a link.
    """
    file = _locate(folder, name)
    try:
        make_folder(file.parent, folder)
        write_state(file, {"key": f"{VERSION} {key}", "value": value}, folder)
    except OSError as error:
        if on_write_error is not None:
            on_write_error(error)


def _locate(folder: Path, name: str) -> Path:
    file = folder / "cache" / f"{name}.safetensors"
    check_path(file, folder)
    return file
