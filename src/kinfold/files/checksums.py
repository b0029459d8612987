"""Checksums of files and of the arrays inside of a feature file."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

SHA256 = re.compile(r"[0-9a-f]{64}")
KEY = "sha256"  # the array of a feature file that holds the checksum of the others


def compute_sha256(content: bytes | bytearray) -> str:
    """Return the sha256 of these bytes in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def digest_parts(parts: Iterable[str | bytes]) -> str:
    """One word for all of them, in this order."""
    found = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        found.update(len(content).to_bytes(8, "little"))
        found.update(content)
    return found.hexdigest()[:32]


def digest_files(paths: Iterable[Path]) -> str:
    return digest_parts(hashlib.sha256(path.read_bytes()).digest() for path in paths)


def add_checksum(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays, and their sha256 as one more."""
    return {**arrays, KEY: np.array(_digest_arrays(arrays))}


def verify_checksum(arrays: dict[str, Array], path: Path) -> dict[str, Array]:
    """The arrays of a file without their checksum.

    A file that another program wrote has none, and is taken as it is.

    Raises:
        ValueError: The arrays are not those that were written.
    """
    recorded = arrays.get(KEY)
    if recorded is None or recorded.shape != () or not SHA256.fullmatch(str(recorded)):
        return arrays
    rest = {name: array for name, array in arrays.items() if name != KEY}
    if _digest_arrays(rest) != str(recorded):
        raise ValueError(
            f"{path} is damaged: its arrays are not what was written (sha256 differs). Embed anew; a file that was "
            f"changed on purpose is saved without the array {KEY!r}"
        )
    return rest


def _digest_arrays(arrays: Mapping[str, Array]) -> str:
    whole = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        if array.nbytes:
            whole.update(array.reshape(-1).view(np.uint8).data)
    return whole.hexdigest()
