"""The checksum that a feature file of ours carries beside its arrays."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kinfold.data.items import Array
from kinfold.documents import SHA256

KEY = "sha256"


def add_checksum(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays, and their sha256 as one more."""
    return {**arrays, KEY: np.array(_digest(arrays))}


def without_checksum(arrays: dict[str, Array], path: Path) -> dict[str, Array]:
    """The arrays of a file without their checksum.

    A file that another program wrote has none, and is taken as it is.

    Raises:
        ValueError: The arrays are not those that were written.
    """
    recorded = arrays.get(KEY)
    if recorded is None or recorded.shape != () or not SHA256.fullmatch(str(recorded)):
        return arrays
    rest = {name: array for name, array in arrays.items() if name != KEY}
    if _digest(rest) != str(recorded):
        raise ValueError(
            f"{path} is damaged: its arrays are not what was written (sha256 differs). Embed anew; a file that was "
            f"changed on purpose is saved without the array {KEY!r}"
        )
    return rest


def _digest(arrays: Mapping[str, Array]) -> str:
    whole = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        if array.nbytes:
            whole.update(array.reshape(-1).view(np.uint8).data)
    return whole.hexdigest()
