"""A table of your own: a CSV or Parquet file with one image per row."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kinfold.data.column_files import read_columns
from kinfold.data.columns import Columns, explain_column_option, resolve_column_names
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.feature_file import USUAL_NAMES
from kinfold.data.items import Array, ImageFiles, Items
from kinfold.data.label_table import read_label_table
from kinfold.data.parquet import is_image_type, read_schema

COLUMNS = ("path", "image", "label", "split", "role", "box", "coarse", "levels", "tags")


def table(
    root: Path | str,
    images: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
) -> Dataset:
    """Read a .csv or .parquet file with one image per row. Parquet needs pyarrow.

    Columns (path and label are required, the others are optional):

    - path: the image file, relative to the folder `images`;
    - label: the class, as text or a number; coarse: the coarse class;
    - split: train, validation or test; role: query, gallery or empty;
    - box: left, upper, right, lower in pixels, separated by blanks, or empty for the whole image;
    - a column that `columns` names as levels, "birds/owls/snowy owl", or as tags, "red;round": how much two items are
      related. It is the class too if there is no column label.

    Instead of path, a Parquet file may have a column image that holds the images themselves: the bytes of each file, or
    the structs {bytes, path} of Hugging Face's library. Numbers in its ClassLabel columns become names.

    Args:
        root: The table.
        images: Folder that the paths are relative to; the folder of the table if left out.
        columns: Columns with another name, as in {"label": "species"}.
        split: Split of all rows, if there is no column split.

    Returns:
        A dataset of images.

    Raises:
        ValueError: A column is missing, a value is empty, or a box is invalid. The message names the row.
        ImportError: A Parquet file, and pyarrow is not installed.
    """
    return build_image_dataset(read_columns(root), columns, images, split)


def build_image_dataset(
    content: Columns,
    columns: Mapping[str, str] | None = None,
    images: Path | str | None = None,
    split: str = "train",
    labels: Array | None = None,
) -> Dataset:
    """Make a dataset of images from the columns of a table.

    Args:
        content: The columns.
        columns: Columns with another name.
        images: Folder that paths are relative to; the folder of the table if left out.
        split: Split of all rows, if there is no column split.
        labels: The class of each row, instead of the column label.

    Raises:
        ValueError: A column is missing, a value is empty, or a box is invalid.
    """
    names = resolve_column_names(columns, COLUMNS)
    items = _find_images(content, names, columns or {}, images)
    label_table, texts = read_label_table(content, columns)
    if labels is None and texts is not None and "label" not in (columns or {}) and names["label"] not in content.names:
        labels = texts
    if labels is None:
        labels = content.require_filled(names["label"], explain_column_option("label"))
    splits = content.get(names["split"])
    role = content.get(names["role"])
    coarse = content.get(names["coarse"])
    for key in {*(columns or {})} - {"path", "image", "label"}:
        content.require(names[key], explain_column_option(key))
    return create_dataset(
        content.path.stem,
        items,
        labels=labels,
        split=np.full(len(labels), split) if splits is None else splits,
        coarse=None if coarse is None else coarse.astype(str),
        role=role,
        label_table=label_table,
    )


def is_image_table(path: Path) -> bool:
    """Whether a .csv or .parquet file is a table of images, not one of features."""
    if path.suffix.lower() not in (".parquet", ".pq"):
        return path.suffix.lower() == ".csv"
    schema = read_schema(path)
    has_features = any(name in schema.names for name in USUAL_NAMES["embedding"])
    return any(is_image_type(kind) for kind in schema.types) or ("path" in schema.names and not has_features)


def _find_images(
    content: Columns, names: dict[str, str], columns: Mapping[str, str], images: Path | str | None
) -> Items:
    """The images of a table: files that it names, or bytes that it holds."""
    if "path" in columns and "image" in columns:
        raise ValueError("columns names both path and image; a table is read by one of them")
    keys = [key for key in ("path", "image") if key in columns] or ["image", "path"]
    name = next((names[key] for key in keys if names[key] in content.images), None)
    boxes = _parse_boxes(content, names["box"])
    if name is None:
        if "image" in columns:
            image_columns = ", ".join(content.images) or "none"
            content.require(names["image"], explain_column_option("image"))
            raise ValueError(
                f"{content.path}: {names['image']!r} holds no bytes of images; columns that do: {image_columns}"
            )
        hint = explain_column_option("image" if content.images else "path")
        paths = content.require_filled(names["path"], hint)
    else:
        column = content.images[name]
        missing = np.flatnonzero(column.missing)
        if not len(missing):
            if images is not None:
                raise ValueError(f"{content.path} holds the images itself, in {name!r}: leave images= out")
            return column.create_items(content.path.name, boxes, content.rows)
        nameless = np.flatnonzero(column.missing & (column.names == ""))
        if len(missing) < len(column.missing) or len(nameless):
            row = content.rows[nameless[0] if len(nameless) else missing[0]]
            raise ValueError(
                f"{content.path} row {row}: {name} has no bytes; give every row its image, or none and a path"
            )
        paths = column.names
    return ImageFiles(content.path.parent if images is None else images, paths, boxes, content.path.name, content.rows)


def _parse_boxes(content: Columns, name: str) -> Array | None:
    column = content.get(name)
    if column is None:
        return None
    boxes = np.full((len(column), 4), -1, dtype=np.int64)
    for index, value in enumerate(column.tolist()):
        numbers = value.split() if isinstance(value, str) else value
        if not numbers:
            continue
        try:
            left, upper, right, lower = (round(float(number)) for number in numbers)
        except (ValueError, TypeError):
            left = upper = right = lower = 0
        if not (0 <= left < right and 0 <= upper < lower):
            raise ValueError(
                f"{content.path} row {content.rows[index]}: the box {value!r} must be four numbers, left upper right "
                "lower, with left < right and upper < lower"
            )
        boxes[index] = left, upper, right, lower
    return boxes
