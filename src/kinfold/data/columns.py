"""Named columns of a table, as arrays of numbers or text, or as images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kinfold import registry
from kinfold.data.cells import Cells
from kinfold.data.items import Array, EncodedImages


@dataclass(frozen=True)
class ImageColumn:
    """Encoded images of a column, in one block of memory.

    Attributes:
        buffer: The bytes of all images, uint8.
        starts, ends: Where each image begins and ends in `buffer`, (N,).
        names: Path of each image, (N,); empty if unknown.
        missing: True where a row has no bytes, (N,).
    """

    buffer: Array
    starts: Array
    ends: Array
    names: Array
    missing: Array

    def create_items(self, source: str, boxes: Array | None, rows: Array) -> EncodedImages:
        """Return the images as items of a dataset."""
        return EncodedImages(self.buffer, self.starts, self.ends, source, self.names, boxes, rows)


@dataclass(frozen=True)
class CellColumn:
    """Images of a column that are read one at a time, when they are used.

    Attributes:
        cells: A sequence of images; see `Cells`.
        names: Path of each image, (N,); empty if unknown.
        missing: True where a row has no image, (N,).
    """

    cells: Any
    names: Array
    missing: Array

    def create_items(self, source: str, boxes: Array | None, rows: Array) -> Cells:
        """Return the images as items of a dataset."""
        return Cells(self.cells, "image", source=source, boxes=boxes)


@dataclass(frozen=True)
class Columns:
    """Named columns of equal length.

    Attributes:
        path: The file that they come from; the name of a table in memory.
        values: Columns of numbers or text, by name.
        rows: Line numbers of a CSV file; otherwise counted from 1.
        objects: Names of columns of Python objects or nested values. These are not read; asking for one is an error.
        images: Columns of images: bytes, the structs {bytes, path} of Hugging Face, or in memory also Pillow images.
    """

    path: Path
    values: Mapping[str, Array]
    rows: Array
    objects: tuple[str, ...] = ()
    images: Mapping[str, ImageColumn | CellColumn] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [*self.values, *self.objects, *self.images]

    def get(self, name: str) -> Array | None:
        """Return a column, or None if there is none of this name."""
        return self.require(name) if name in self.names else None

    def require(self, name: str, hint: str = "") -> Array:
        """Return a column, or raise a ValueError that ends with `hint`."""
        if name in self.objects:
            raise ValueError(
                f"{self.path}: {name!r} holds Python objects or nested values, which are not read from files; save it "
                "as plain numbers and text"
            )
        if name in self.images:
            raise ValueError(
                f"{self.path}: {name!r} holds the bytes of images, not numbers or text; "
                "kinfold.data.load('table', ...) (--data table) reads it"
            )
        if name not in self.values:
            near = registry.suggest(name, self.names)
            message = f"{self.path} has no column {name!r}{near}; it has {', '.join(self.names)}"
            raise ValueError(f"{message}. {hint}" if hint else message)
        return self.values[name]

    def require_filled(self, name: str, hint: str) -> Array:
        """Return a column as text, or raise a ValueError that names the first row without a value."""
        values = self.require(name, hint).astype(str)
        empty = np.flatnonzero(values == "")
        if len(empty):
            raise ValueError(f"{self.path} row {self.rows[empty[0]]}: {name} is empty")
        return values


def explain_column_option(key: str) -> str:
    """Explain how to say which column of a file is meant."""
    typed = f"--set data.options.columns.{key}=... on the command line"
    return f"Say which one it is: columns={{{key!r}: ...}} in Python, {typed}"


def resolve_column_names(columns: Mapping[str, str] | None, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the name in the file for each key: the key itself, unless `columns` gives another."""
    for key in columns or {}:
        if key not in keys:
            raise ValueError(f"unknown column {key!r}{registry.suggest(key, keys)}; known are {', '.join(keys)}")
    return {key: (columns or {}).get(key, key) for key in keys}


def check_distinct(path: Path, names: Sequence[str]) -> None:
    """Refuse a table with two columns of the same name."""
    for index, name in enumerate(names):
        if name and name in names[:index]:
            first = names.index(name)
            raise ValueError(
                f"{path} has two columns {name!r}, at positions {first + 1} and {index + 1}; rename or remove one"
            )
