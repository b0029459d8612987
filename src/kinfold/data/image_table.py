"""A table of one's own: a CSV or Parquet file with one image per row."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kinfold.data.columns import Columns, explain_column_option, holds_images, read_columns, resolve_column_names
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.feature_file import USUAL_NAMES
from kinfold.data.items import Array, EncodedImages, ImageFiles
from kinfold.optional import import_optional

COLUMNS = ("path", "image", "label", "split", "role", "box", "coarse")


def table(
    root: Path | str,
    images: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
) -> Dataset:
    """Rows of `root`, a .csv or .parquet file, with the columns

    path: the image, relative to the folder `images` (the file's own folder where left out);
    label: the class, a word or a number; coarse: the class above it;
    split: train, validation or test (without this column every row gets `split`); role: query, gallery or empty;
    box: left, upper, right, lower in pixels with blanks between, or empty for the whole image.

    path and label are needed. `columns={"label": "species"}` reads a column of another name. Parquet needs pyarrow.

    Instead of path, a Parquet file may hold the images themselves, in a column image: the bytes of each file, or the
    structs {bytes, path} that Hugging Face's library writes. Numbers of its ClassLabel columns become names.
    """
    names = resolve_column_names(columns, COLUMNS)
    read = read_columns(root)
    items = _items(read, names, columns or {}, images)
    labels = read.require_filled(names["label"], explain_column_option("label"))
    splits = read.get(names["split"])
    role = read.get(names["role"])
    coarse = read.get(names["coarse"])
    for key in {*(columns or {})} - {"path", "image"}:
        read.require(names[key], explain_column_option(key))
    return create_dataset(
        read.path.stem,
        items,
        labels=labels,
        split=np.full(len(labels), split) if splits is None else splits,
        coarse=None if coarse is None else coarse.astype(str),
        role=role,
    )


def is_image_table(path: Path) -> bool:
    """Whether a .csv or .parquet file is a table of images, not one of features."""
    if path.suffix.lower() not in (".parquet", ".pq"):
        return path.suffix.lower() == ".csv"
    parquet = import_optional("pyarrow.parquet", "pyarrow", "parquet", f"reading {path}")
    try:
        schema = parquet.read_schema(str(path))
    except Exception as unreadable:  # pyarrow raises kinds of its own for a cut or foreign file
        raise ValueError(f"{path} is not a readable Parquet file: {unreadable}") from None
    features = any(name in schema.names for name in USUAL_NAMES["embedding"])
    return any(holds_images(kind) for kind in schema.types) or ("path" in schema.names and not features)


def _items(
    read: Columns, names: dict[str, str], columns: Mapping[str, str], images: Path | str | None
) -> ImageFiles | EncodedImages:
    """Images of a table: files that it names, or bytes that it holds."""
    if "path" in columns and "image" in columns:
        raise ValueError("columns names both path and image; a table is read by one of them")
    keys = [key for key in ("path", "image") if key in columns] or ["image", "path"]
    name = next((names[key] for key in keys if names[key] in read.images), None)
    boxes = _boxes(read, names["box"])
    if name is None:
        if "image" in columns:
            kinds = ", ".join(read.images) or "none"
            read.require(names["image"], explain_column_option("image"))
            raise ValueError(f"{read.path}: {names['image']!r} holds no bytes of images; columns that do: {kinds}")
        hint = explain_column_option("path") if not read.images else explain_column_option("image")
        paths = read.require_filled(names["path"], hint)
    else:
        column = read.images[name]
        absent = np.flatnonzero(column.missing)
        if not len(absent):
            if images is not None:
                raise ValueError(f"{read.path} holds the images itself, in {name!r}: leave images= out")
            return EncodedImages(
                column.buffer, column.starts, column.ends, read.path.name, column.names, boxes, read.rows
            )
        nameless = np.flatnonzero(column.missing & (column.names == ""))
        if len(absent) < len(column.missing) or len(nameless):
            row = read.rows[nameless[0] if len(nameless) else absent[0]]
            raise ValueError(
                f"{read.path} row {row}: {name} has no bytes; give every row its image, or none and a path"
            )
        paths = column.names
    return ImageFiles(read.path.parent if images is None else images, paths, boxes, read.path.name, read.rows)


def _boxes(read: Columns, name: str) -> Array | None:
    given = read.get(name)
    if given is None:
        return None
    boxes = np.full((len(given), 4), -1, dtype=np.int64)
    for place, cell in enumerate(given.tolist()):
        words = cell.split() if isinstance(cell, str) else cell
        if not words:
            continue
        try:
            left, upper, right, lower = (round(float(word)) for word in words)
        except (ValueError, TypeError):
            left = upper = right = lower = 0
        if not (0 <= left < right and 0 <= upper < lower):
            raise ValueError(
                f"{read.path} row {read.rows[place]}: the box {cell!r} must be four numbers, left upper right lower, "
                "with left < right and upper < lower"
            )
        boxes[place] = left, upper, right, lower
    return boxes
