"""Embeddings and labels of a file, to evaluate as they are: nothing is split or renumbered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from kinfold import registry
from kinfold.data.column_files import read_columns
from kinfold.data.columns import Columns
from kinfold.data.feature_file import USUAL_NAMES
from kinfold.data.items import Array
from kinfold.data.label_table import LabelTable

_HINTS = {
    "embeddings": "say which one it is, as in --embeddings-key vectors",
    "labels": "say which one it is, as in --labels-key species",
}


@dataclass(frozen=True)
class StoredEmbeddings:
    """Rows of a file.

    Attributes:
        embeddings: (N, d).
        labels: (N,).
        coarse_labels: (N,), or None if they were not asked for.
        splits: The distinct values of the column split; empty if there is no such column.
        related: Texts of a column of levels or tags, (N,), or None if it was not asked for.
    """

    embeddings: Array
    labels: Array
    coarse_labels: Array | None
    splits: tuple[str, ...] = ()
    related: Array | None = None


def read_stored_embeddings(
    path: Path | str,
    *,
    embeddings_key: str | None = None,
    labels_key: str | None = None,
    coarse_key: str | None = None,
    related_key: str | None = None,
    where: Sequence[str] = (),
    label: str | None = None,
    hints: Mapping[str, str] = _HINTS,
) -> StoredEmbeddings:
    """Read embeddings and labels from an .npz or Parquet file.

    Args:
        path: The file.
        embeddings_key, labels_key: Names of the columns; usual names are recognized if left out.
        coarse_key: Name of the column of coarse labels.
        related_key: Name of the column of levels or tags. It holds the labels too if the file has no labels.
        where: Conditions on other columns, such as "split=test". Rows that meet all of them are returned.
        label: The label of all rows, instead of those of the file.
        hints: What to do where "embeddings" or "labels" are missing, for the message.

    Raises:
        ValueError: A column is missing, lengths differ, or no row meets the conditions.
    """
    extension = Path(path).suffix.lower()
    if extension in (".npy", ".csv"):
        reason = "holds one array only" if extension == ".npy" else "is a text table without a column for embeddings"
        raise ValueError(
            f"{path} {reason}; embeddings and labels belong in one .npz file: "
            "numpy.savez('embeddings.npz', embeddings=..., labels=...)"
        )
    columns = read_columns(path)
    embeddings = _require(columns, embeddings_key, "embedding", hints["embeddings"])
    related = columns.require(related_key).astype(str) if related_key else None
    if label is not None:
        labels = np.full(len(embeddings), label)
    elif related is not None and labels_key is None and not any(name in columns.names for name in USUAL_NAMES["label"]):
        labels = np.char.strip(related)
    else:
        labels = _require(columns, labels_key, "label", hints["labels"])
    coarse = columns.require(coarse_key) if coarse_key else None
    if len(embeddings) != len(labels):
        raise ValueError(f"{path}: {len(embeddings)} embeddings but {len(labels)} labels")
    keep = np.ones(len(labels), dtype=bool)
    for condition in where:
        keep &= _match(columns, condition, len(labels))
    if not keep.any():
        raise ValueError(f"{path}: no row has {' and '.join(where)}" if where else f"{path} has no rows")
    if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu":
        raise ValueError(
            f"{path}: embeddings must be numbers of shape (N, d), got {embeddings.dtype} {embeddings.shape}"
        )
    if where:
        embeddings, labels = embeddings[keep], labels[keep]
        coarse = None if coarse is None else coarse[keep]
        related = None if related is None else related[keep]
    split = columns.values.get("split")
    splits = () if split is None else tuple(sorted({str(value) for value in split.reshape(-1).tolist()}))
    return StoredEmbeddings(embeddings, labels, coarse, splits, related)


def relate_stored(
    kind: Literal["levels", "tags"], queries: StoredEmbeddings, gallery: StoredEmbeddings | None
) -> LabelTable:
    """Read the levels or tags of queries, and after them those of a gallery, that were asked for."""
    texts = [rows.related for rows in (queries, gallery) if rows is not None and rows.related is not None]
    return LabelTable.from_texts(kind, np.concatenate(texts))


def _require(columns: Columns, key: str | None, kind: str, hint: str) -> Array:
    if key is None:
        key = next((name for name in USUAL_NAMES[kind] if name in columns.names), None)
        if key is None:
            raise ValueError(f"{columns.path} has no array of {kind}s among {', '.join(columns.names)}; {hint}")
    return columns.require(key)


def _match(columns: Columns, condition: str, count: int) -> Array:
    """Which rows meet a condition, boolean (count,)."""
    key, sign, value = condition.partition("=")
    if not sign:
        raise ValueError(f"the condition {condition!r} must look like name=value, as in split=test")
    column = columns.require(key)
    if column.shape != (count,):
        raise ValueError(f"{columns.path}: {key!r} has shape {column.shape}, not one value for each of {count} rows")
    matches: Array = column.astype(str) == value
    if not matches.any():
        present = sorted({str(entry) for entry in column.tolist()})
        shown = ", ".join(present[:8]) + (", ..." if len(present) > 8 else "")
        near = registry.suggest(value, present)
        raise ValueError(f"{columns.path}: no row has {condition}{near}; {key} is one of {shown}")
    return matches
