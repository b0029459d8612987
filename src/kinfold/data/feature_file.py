"""Feature files: embeddings of any model with labels, to train a head on or to evaluate."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kinfold.data.columns import Columns, explain_column_option, read_columns, read_npy, resolve_column_names
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.items import Array, Rows

USUAL_NAMES = {
    "embedding": ("embeddings", "embedding", "features", "feat", "x"),
    "label": ("labels", "label", "classes", "cls", "y", "targets"),
    "split": ("split",),
    "role": ("role",),
    "coarse": ("coarse",),
}


def features(
    root: Path | str,
    labels: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
) -> Dataset:
    """Embeddings (N, d) and labels from an .npz, .parquet or .npy file.

    .npz and .parquet hold both; usual names are found (embeddings, features, feat, x; labels, cls, y), others are
    given as `columns={"embedding": "clip", "label": "species"}`; split, role and coarse are read where they exist.
    .npy holds the embeddings alone and stays on disk, memory-mapped; `labels` is then an .npy, .csv, .parquet or .npz
    file with a row for each.
    """
    root = Path(root)
    names = resolve_column_names(columns, tuple(USUAL_NAMES))
    if root.suffix.lower() == ".npy":
        if labels is None:
            raise ValueError(
                f"{root} holds embeddings alone; give the file of their labels: labels='labels.npy' in Python, "
                "--set data.options.labels=labels.npy on the command line"
            )
        if not root.is_file():
            raise ValueError(f"there is no file {root}")
        embeddings = read_npy(root)
        read = read_columns(labels)
    else:
        if labels is not None:
            raise ValueError(f"{root} holds its labels itself; labels= is for .npy files")
        read = read_columns(root)
        embeddings = _column(read, names, "embedding", columns) if read.names else np.zeros(0)
    if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu":
        raise ValueError(
            f"{root}: embeddings must be numbers of shape (N, d), got {embeddings.dtype} {embeddings.shape}"
        )
    if embeddings.dtype.kind == "f" and not isinstance(embeddings, np.memmap):
        broken = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
        if len(broken):
            raise ValueError(
                f"row {broken[0]} (counted from 0) of the embeddings in {root} holds NaN or infinite values "
                f"({len(broken):,} such in all): find out why the model gave them, or leave those rows out"
            )
    given = _column(read, names, "label", columns)
    if given.shape != (len(embeddings),):
        raise ValueError(f"{root}: {len(embeddings)} embeddings but labels of shape {given.shape}")
    empty = np.flatnonzero(given.astype(str) == "")
    if len(empty):
        raise ValueError(f"{read.path} row {read.rows[empty[0]]}: the label is empty")
    splits = _optional(read, names, "split", columns)
    return create_dataset(
        root.stem,
        Rows(embeddings),
        labels=given,
        split=np.full(len(given), split) if splits is None else splits,
        coarse=_optional(read, names, "coarse", columns),
        role=_optional(read, names, "role", columns),
    )


def _column(read: Columns, names: dict[str, str], key: str, columns: Mapping[str, str] | None) -> Array:
    if key in (columns or {}):
        return read.require(names[key], explain_column_option(key))
    usual = next((name for name in USUAL_NAMES[key] if name in read.names), USUAL_NAMES[key][0])
    return read.require(usual, explain_column_option(key))


def _optional(read: Columns, names: dict[str, str], key: str, columns: Mapping[str, str] | None) -> Array | None:
    if key in (columns or {}):
        return read.require(names[key], explain_column_option(key))
    return read.get(USUAL_NAMES[key][0])
