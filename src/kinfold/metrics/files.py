"""Embeddings and labels in .npz files: numbers and text only, nothing is ever unpickled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from kinfold import registry

EMBEDDINGS = ("embeddings", "embedding", "features", "feat", "x")
LABELS = ("labels", "label", "classes", "cls", "y", "targets")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Stored:
    """Rows of a file: embeddings (N, d), labels (N,), and coarse labels (N,) where asked for."""

    embeddings: Array
    labels: Array
    coarse_labels: Array | None


def load(
    path: Path | str,
    *,
    embeddings_key: str | None = None,
    labels_key: str | None = None,
    coarse_key: str | None = None,
    where: Sequence[str] = (),
) -> Stored:
    """Read arrays from an .npz file; `where` holds conditions such as "split=test" on other arrays of the file."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        opened = np.load(path, allow_pickle=False)
    except (ValueError, BadZipFile, OSError) as unreadable:
        raise ValueError(f"{path} is not an .npz file of plain arrays: {unreadable}") from None
    if not isinstance(opened, np.lib.npyio.NpzFile):
        raise ValueError(
            f"{path} holds one array only; embeddings and labels belong in one file: "
            "numpy.savez('embeddings.npz', embeddings=..., labels=...)"
        )
    with opened as file:
        embeddings = _array(file, path, embeddings_key, EMBEDDINGS, "embeddings")
        labels = _array(file, path, labels_key, LABELS, "labels")
        coarse = _array(file, path, coarse_key, (), "coarse labels") if coarse_key else None
        keep = np.ones(len(labels), dtype=bool)
        for condition in where:
            keep &= _holds(file, path, condition, len(labels))
    if len(embeddings) != len(labels):
        raise ValueError(f"{path}: {len(embeddings)} embeddings but {len(labels)} labels")
    if not keep.any():
        raise ValueError(f"{path}: no row has {' and '.join(where)}")
    if where:
        embeddings, labels = embeddings[keep], labels[keep]
        coarse = None if coarse is None else coarse[keep]
    return Stored(embeddings, labels, coarse)


def _array(file: Any, path: Path, key: str | None, usual: tuple[str, ...], what: str) -> Array:
    names = list(file.files)
    if key is None:
        key = next((name for name in usual if name in names), None)
        if key is None:
            raise ValueError(f"{path} has no array of {what} among {', '.join(names)}; say which one it is")
    if key not in names:
        raise ValueError(f"{path} has no array {key!r}{registry.nearest(key, names)}; it has {', '.join(names)}")
    try:
        found: Array = file[key]
    except ValueError:
        raise ValueError(
            f"{path}: the array {key!r} holds Python objects, which are not read from files; save it as numbers or text"
        ) from None
    return found


def _holds(file: Any, path: Path, condition: str, rows: int) -> Array:
    key, sign, value = condition.partition("=")
    if not sign:
        raise ValueError(f"the condition {condition!r} must look like name=value, as in split=test")
    column = _array(file, path, key, (), "conditions")
    if column.shape != (rows,):
        raise ValueError(f"{path}: {key!r} has shape {column.shape}, not one value for each of {rows} rows")
    held: Array = column.astype(str) == value
    if not held.any():
        seen = sorted({str(entry) for entry in column.tolist()})
        shown = ", ".join(seen[:8]) + (", ..." if len(seen) > 8 else "")
        raise ValueError(f"{path}: no row has {condition}; {key} is one of {shown}")
    return held
