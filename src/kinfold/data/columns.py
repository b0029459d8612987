"""Columns of a CSV, Parquet, .npz or .npy file as arrays of numbers or text; nothing is ever unpickled."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

from kinfold import registry
from kinfold.data.items import Array
from kinfold.optional import needed


@dataclass(frozen=True)
class Columns:
    """Named columns of equal length; `rows` are the line numbers of a CSV, else a count from 1.

    `objects` are columns of Python objects, which nobody reads; they do no harm as long as nobody asks for them.
    """

    path: Path
    values: dict[str, Array]
    rows: Array
    objects: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [*self.values, *self.objects]

    def get(self, name: str) -> Array | None:
        """A column, or None where there is none of this name."""
        return self.require(name) if name in self.names else None

    def require(self, name: str, hint: str = "") -> Array:
        """A column that must be there; `hint` says how to point to it."""
        if name in self.objects:
            raise ValueError(
                f"{self.path}: {name!r} holds Python objects, which are not read from files; save it as plain numbers "
                "and text"
            )
        if name not in self.values:
            near = registry.nearest(name, self.names)
            has = f"{self.path} has no column {name!r}{near}; it has {', '.join(self.names)}"
            raise ValueError(f"{has}. {hint}" if hint else has)
        return self.values[name]

    def filled(self, name: str, hint: str) -> Array:
        """A required column of words without an empty one; the row of an empty one is named."""
        words = self.require(name, hint).astype(str)
        empty = np.flatnonzero(words == "")
        if len(empty):
            raise ValueError(f"{self.path} row {self.rows[empty[0]]}: {name} is empty")
        return words


def naming(key: str) -> str:
    """How to say which column is meant."""
    typed = f"--set data.options.columns.{key}=... on the command line"
    return f"Say which one it is: columns={{{key!r}: ...}} in Python, {typed}"


def chosen(columns: Mapping[str, str] | None, known: tuple[str, ...]) -> dict[str, str]:
    """The name in the file of each known column: its own, unless `columns` gives another."""
    for key in columns or {}:
        if key not in known:
            raise ValueError(f"unknown column {key!r}{registry.nearest(key, known)}; known are {', '.join(known)}")
    return {key: (columns or {}).get(key, key) for key in known}


def read_columns(path: Path | str) -> Columns:
    """Read a table by its ending: .csv, .parquet (needs pyarrow), .npz, or .npy (one column, named label)."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder, not a table: images in one sub-folder for each class are read with --data folder "
            "(load('folder', ...))"
        )
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    ending = path.suffix.lower()
    if ending == ".csv":
        return _csv(path)
    objects: tuple[str, ...] = ()
    if ending in (".parquet", ".pq"):
        values = _parquet(path)
    elif ending == ".npz":
        values, objects = _npz(path)
    elif ending == ".npy":
        values = {"label": read_npy(path)}
    else:
        raise ValueError(f"{path}: unknown kind of file {ending!r}; it is one of .csv, .parquet, .npz, .npy")
    longest = max((len(v) for v in values.values() if v.ndim), default=0)
    return Columns(path, values, np.arange(1, 1 + longest), objects)


def read_npy(path: Path) -> Array:
    """A memory-mapped array: rows are read from disk when they are used."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as unreadable:
        raise ValueError(f"{path} is not an .npy file of plain numbers or text: {unreadable}") from None
    return array


def _csv(path: Path) -> Columns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, None)
            if not header:
                raise ValueError(f"{path} is empty; its first line must name the columns, as in path,label,split")
            table, lines = [], []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise ValueError(f"{path} row {reader.line_num} has {len(row)} fields but the header {len(header)}")
                table.append(row)
                lines.append(reader.line_num)
    except (csv.Error, UnicodeDecodeError) as unreadable:
        raise ValueError(f"{path} is not a readable CSV file: {unreadable}") from None
    if not table:
        raise ValueError(f"{path} has a header but no rows")
    cells = zip(*table, strict=True)
    values = {name.strip(): np.array(column, dtype=str) for name, column in zip(header, cells, strict=True)}
    return Columns(path, values, np.array(lines))


def _parquet(path: Path) -> dict[str, Array]:
    parquet = needed("pyarrow.parquet", "pyarrow", "parquet", f"reading {path}")
    try:
        table = parquet.read_table(str(path))
    except Exception as unreadable:  # pyarrow raises kinds of its own for a cut or foreign file
        raise ValueError(f"{path} is not a readable Parquet file: {unreadable}") from None
    return {str(name): _parquet_column(table.column(name)) for name in table.column_names}


def _parquet_column(column: Any) -> Array:
    """Numbers, text, or equally long lists of numbers as an array; a missing cell becomes empty text."""
    compute = needed("pyarrow.compute", "pyarrow", "parquet", "reading Parquet")
    lists = str(column.type).startswith(("list", "large_list", "fixed_size_list"))
    if lists and not column.null_count and len(compute.unique(compute.list_value_length(column))) == 1:
        # a million embeddings as one block instead of as Python numbers
        return np.asarray(compute.list_flatten(column).to_numpy()).reshape(len(column), -1)
    cells = ["" if cell is None else cell for cell in column.to_pylist()]
    return np.array([" ".join(map(str, cell)) if isinstance(cell, list) else cell for cell in cells])


def _npz(path: Path) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The arrays, and the names of those that hold Python objects."""
    values, objects = dict[str, Array](), list[str]()
    try:
        if not is_zipfile(path):  # numpy would take it for something to unpickle
            raise ValueError("numpy.savez writes one")
        opened = np.load(path, allow_pickle=False)
        with opened as file:
            for name in file.files:
                try:
                    values[name] = file[name]
                except ValueError:  # what numpy says instead of unpickling
                    objects.append(name)
    except (ValueError, BadZipFile, OSError, EOFError) as unreadable:
        raise ValueError(f"{path} is not an .npz file of plain numbers and text: {unreadable}") from None
    return values, tuple(objects)
