"""Embeddings and labels of a file as they are, to be measured: nothing is split or re-indexed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinfold.data.columns import Columns, read_columns
from kinfold.data.feature_file import USUAL_NAMES
from kinfold.data.items import Array

KEYS = {"embeddings": "as in --embeddings-key vectors", "labels": "as in --labels-key species"}


@dataclass(frozen=True)
class StoredEmbeddings:
    """Rows of a file: embeddings (N, d), labels (N,), and coarse labels (N,) where asked for; the words of its column
    `split`, where it has one."""

    embeddings: Array
    labels: Array
    coarse_labels: Array | None
    splits: tuple[str, ...] = ()


def read_stored_embeddings(
    path: Path | str,
    *,
    embeddings_key: str | None = None,
    labels_key: str | None = None,
    coarse_key: str | None = None,
    where: Sequence[str] = (),
) -> StoredEmbeddings:
    """Read an .npz or Parquet file; `where` holds conditions such as "split=test" on other columns of it."""
    ending = Path(path).suffix.lower()
    if ending in (".npy", ".csv"):
        why = (
            "holds one array only" if ending == ".npy" else "is a table of words, with no column for a whole embedding"
        )
        raise ValueError(
            f"{path} {why}; embeddings and labels belong in one .npz file: "
            "numpy.savez('embeddings.npz', embeddings=..., labels=...)"
        )
    columns = read_columns(path)
    embeddings = _found(columns, embeddings_key, USUAL_NAMES["embedding"], "embeddings")
    labels = _found(columns, labels_key, USUAL_NAMES["label"], "labels")
    coarse = _found(columns, coarse_key, (), "coarse labels") if coarse_key else None
    if len(embeddings) != len(labels):
        raise ValueError(f"{path}: {len(embeddings)} embeddings but {len(labels)} labels")
    keep = np.ones(len(labels), dtype=bool)
    for condition in where:
        keep &= _holds(columns, condition, len(labels))
    if not keep.any():
        raise ValueError(f"{path}: no row has {' and '.join(where)}")
    if where:
        embeddings, labels = embeddings[keep], labels[keep]
        coarse = None if coarse is None else coarse[keep]
    split = columns.values.get("split")
    words = () if split is None else tuple(sorted({str(word) for word in split.reshape(-1).tolist()}))
    return StoredEmbeddings(embeddings, labels, coarse, words)


def _found(columns: Columns, key: str | None, usual: tuple[str, ...], what: str) -> Array:
    names = columns.names
    if key is None:
        key = next((name for name in usual if name in names), None)
        if key is None:
            raise ValueError(
                f"{columns.path} has no array of {what} among {', '.join(names)}; say which one it is, {KEYS[what]}"
            )
    return columns.require(key)


def _holds(columns: Columns, condition: str, rows: int) -> Array:
    key, sign, value = condition.partition("=")
    if not sign:
        raise ValueError(f"the condition {condition!r} must look like name=value, as in split=test")
    column = _found(columns, key, (), "conditions")
    if column.shape != (rows,):
        raise ValueError(f"{columns.path}: {key!r} has shape {column.shape}, not one value for each of {rows} rows")
    held: Array = column.astype(str) == value
    if not held.any():
        seen = sorted({str(entry) for entry in column.tolist()})
        shown = ", ".join(seen[:8]) + (", ..." if len(seen) > 8 else "")
        raise ValueError(f"{columns.path}: no row has {condition}; {key} is one of {shown}")
    return held
