"""Feature files: embeddings of any model with labels, to train a head on or to evaluate."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kinfold.data.column_files import read_columns, read_npy
from kinfold.data.columns import Columns, explain_column_option, resolve_column_names
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.items import Array, ImageFiles, Rows
from kinfold.data.label_table import read_label_table
from kinfold.files.paths import describe_missing

USUAL_NAMES = {
    "embedding": ("embeddings", "embedding", "features", "feat", "x"),
    "label": ("labels", "label", "classes", "cls", "y", "targets"),
    "split": ("split",),
    "role": ("role",),
    "coarse": ("coarse",),
    "path": ("path",),
    "levels": ("levels",),
    "tags": ("tags",),
}


def features(
    root: Path | str,
    labels: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
    images: Path | str | None = None,
) -> Dataset:
    """Read embeddings (N, d) and labels from an .npz, .parquet or .npy file.

    Usual column names are recognized: embeddings, features, feat, x; labels, cls, y. Columns split, role and coarse are
    read if they exist. A column that `columns` names as levels, "birds/owls/snowy owl", or as tags, "red;round", says
    how much two items are related; it is the class too if there is no column of labels.

    Args:
        root: The file. An .npy file holds the embeddings alone, and stays on disk, memory-mapped.
        labels: For an .npy file: an .npy, .csv, .parquet or .npz file with the label of each row.
        columns: Names of columns that are not recognized, as in {"embedding": "clip", "label": "species"}.
        split: Split of all rows, if there is no column split.
        images: The folder that the column path is relative to. Reports show the images of the rows then.

    Returns:
        A dataset of feature rows.

    Raises:
        ValueError: A file, folder or column is missing, lengths differ, a label is empty, or embeddings are not finite.
        ImportError: A Parquet file, and pyarrow is not installed.
    """
    root = Path(root)
    resolve_column_names(columns, tuple(USUAL_NAMES))  # before anything is read
    embeddings: Array | None = None
    if root.suffix.lower() == ".npy":
        if labels is None:
            raise ValueError(
                f"{root} holds embeddings alone; give the file of their labels: labels='labels.npy' in Python, "
                "--set data.options.labels=labels.npy on the command line"
            )
        if not root.is_file():
            raise ValueError(describe_missing(root))
        embeddings = read_npy(root)
        table = read_columns(labels)
    else:
        if labels is not None:
            raise ValueError(f"{root} holds its labels itself; labels= is for .npy files")
        table = read_columns(root)
    if images is not None and not Path(images).is_dir():
        raise ValueError(f"images={str(images)!r} is no folder: name the one that the column path is relative to")
    return build_feature_dataset(root, table, embeddings, columns, split, images=images)


def build_feature_dataset(
    source: Path,
    table: Columns,
    embeddings: Array | None = None,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
    labels: Array | None = None,
    images: Path | str | None = None,
) -> Dataset:
    """Make a dataset of feature rows from the columns of a table.

    Args:
        source: Name of the table or file, for error messages.
        table: The columns.
        embeddings: (N, d), if they are not a column.
        columns: Names of columns that are not recognized.
        split: Split of all rows, if there is no column split.
        labels: The class of each row, instead of the column label.
        images: The folder that the column path is relative to.

    Raises:
        ValueError: A column is missing, lengths differ, a label is empty, or embeddings are not finite.
    """
    names = resolve_column_names(columns, tuple(USUAL_NAMES))
    if embeddings is None:
        embeddings = _require(table, names, "embedding", columns) if table.names else np.zeros(0)
    _check_embeddings(source, embeddings)
    label_table, texts = read_label_table(table, columns)
    has_labels = "label" in (columns or {}) or any(name in table.names for name in USUAL_NAMES["label"])
    if labels is None and texts is not None and not has_labels:
        labels = texts
    label_column = _require(table, names, "label", columns) if labels is None else labels
    if label_column.shape != (len(embeddings),):
        raise ValueError(f"{source}: {len(embeddings)} embeddings but labels of shape {label_column.shape}")
    empty = np.flatnonzero(label_column.astype(str) == "")
    if len(empty) and labels is None:
        raise ValueError(f"{table.path} row {table.rows[empty[0]]}: the label is empty")
    splits = _get(table, names, "split", columns)
    pictures = None
    if images is not None:
        pictures = ImageFiles(images, _require(table, names, "path", columns), source=str(source), rows=table.rows)
    return create_dataset(
        source.stem,
        Rows(embeddings, pictures=pictures),
        labels=label_column,
        split=np.full(len(label_column), split) if splits is None else splits,
        coarse=_get(table, names, "coarse", columns),
        role=_get(table, names, "role", columns),
        label_table=label_table,
    )


def _check_embeddings(root: Path, embeddings: Array) -> None:
    if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu":
        raise ValueError(
            f"{root}: embeddings must be numbers of shape (N, d), got {embeddings.dtype} {embeddings.shape}"
        )
    if embeddings.dtype.kind == "f" and not isinstance(embeddings, np.memmap):
        not_finite = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
        if len(not_finite):
            raise ValueError(
                f"row {not_finite[0]} (counted from 0) of the embeddings in {root} holds NaN or infinite values "
                f"({len(not_finite):,} such in all): find out why the model gave them, or leave those rows out"
            )


def _require(table: Columns, names: dict[str, str], key: str, columns: Mapping[str, str] | None) -> Array:
    if key in (columns or {}):
        return table.require(names[key], explain_column_option(key))
    usual = next((name for name in USUAL_NAMES[key] if name in table.names), USUAL_NAMES[key][0])
    return table.require(usual, explain_column_option(key))


def _get(table: Columns, names: dict[str, str], key: str, columns: Mapping[str, str] | None) -> Array | None:
    if key in (columns or {}):
        return table.require(names[key], explain_column_option(key))
    return table.get(USUAL_NAMES[key][0])
