"""Computed values kept in the folder that they belong to, so that they are computed once."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kinfold.files.paths import check_path, make_folder
from kinfold.files.state import read_state, write_state

VERSION = 2  # of what is kept; another number makes all of it anew


def load_or_compute(folder: Path, name: str, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What lies in cache/NAME of a folder where it is of this key; else what `make` gives, kept for the next time.

    Damaged files count as absent: they carry their sha256. A folder that cannot be written to only costs the time. A
    link in its place is refused.
    """
    file = folder / "cache" / f"{name}.safetensors"
    check_path(file, folder)
    whole_key = f"{VERSION} {key}"
    with suppress(ValueError, OSError):
        found = read_state(file, within=folder)
        if isinstance(found, dict) and found.get("key") == whole_key and isinstance(found.get("value"), dict):
            value: dict[str, Any] = found["value"]
            return value
    made = make()
    with suppress(OSError):
        make_folder(file.parent, folder)
        write_state(file, {"key": whole_key, "value": made}, folder)
    return made
