"""Checksums of files, of strings and bytes, and of the arrays of a feature file."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

SHA256 = re.compile(r"[0-9a-f]{64}")
CHECKSUM_ARRAY = "sha256"  # the array of a feature file that holds the checksum of the others


def compute_sha256(content: bytes | bytearray) -> str:
    """Return the sha256 of these bytes in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def digest_parts(parts: Iterable[str | bytes]) -> str:
    """Return one digest of 32 hexadecimal digits for several strings and bytes, in this order."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()[:32]


def digest_files(paths: Iterable[Path]) -> str:
    """Return one digest of 32 hexadecimal digits for the contents of several files, in this order."""
    return digest_parts(hashlib.sha256(path.read_bytes()).digest() for path in paths)


def add_checksum(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays with their sha256 as one more array."""
    return {**arrays, CHECKSUM_ARRAY: np.array(_digest_arrays(arrays))}


def verify_checksum(arrays: dict[str, Array], path: Path) -> dict[str, Array]:
    """Check the arrays of a file against their checksum.

    A file of another program has no checksum and is not checked.

    Args:
        arrays: All arrays of the file.
        path: The file, for the error message.

    Returns:
        The arrays without the checksum.

    Raises:
        ValueError: The arrays have changed since they were written.
    """
    recorded = arrays.get(CHECKSUM_ARRAY)
    if recorded is None or recorded.shape != () or not SHA256.fullmatch(str(recorded)):
        return arrays
    rest = {name: array for name, array in arrays.items() if name != CHECKSUM_ARRAY}
    if _digest_arrays(rest) != str(recorded):
        raise ValueError(
            f"{path} is damaged: its arrays are not what was written (sha256 differs). Embed again; save a file "
            f"that you changed on purpose without the array {CHECKSUM_ARRAY!r}"
        )
    return rest


def _digest_arrays(arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        if array.nbytes:
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
