"""A table of one's own: a CSV or Parquet file with one image per row."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kinfold.data.columns import Columns, chosen, naming, read_columns
from kinfold.data.dataset import Dataset, make
from kinfold.data.items import Array, ImageFiles

COLUMNS = ("path", "label", "split", "role", "box", "coarse")


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
    """
    names = chosen(columns, COLUMNS)
    read = read_columns(root)
    paths = read.filled(names["path"], naming("path"))
    labels = read.filled(names["label"], naming("label"))
    splits = read.get(names["split"])
    role = read.get(names["role"])
    coarse = read.get(names["coarse"])
    for key in columns or {}:
        read.require(names[key], naming(key))
    return make(
        read.path.stem,
        ImageFiles(
            read.path.parent if images is None else images,
            paths,
            _boxes(read, names["box"]),
            read.path.name,
            read.rows,
        ),
        labels=labels,
        split=np.full(len(labels), split) if splits is None else splits,
        coarse=None if coarse is None else coarse.astype(str),
        role=role,
    )


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
