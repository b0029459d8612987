"""Readers of tables: CSV, Parquet, .npz and .npy files. Nothing is ever unpickled."""

import csv
from pathlib import Path
from zipfile import BadZipFile, is_zipfile

import numpy as np

from kinfold.data.columns import Columns, check_distinct
from kinfold.data.items import Array
from kinfold.data.parquet import read_parquet
from kinfold.files.checksums import verify_checksum
from kinfold.files.paths import describe_missing

# what numpy raises for files that are damaged, nested too deep, or announce more than the memory holds
UNREADABLE = (ValueError, OSError, EOFError, RecursionError, MemoryError)


def read_columns(path: Path | str) -> Columns:
    """Read a table by its file extension.

    Args:
        path: A .csv, .parquet (needs pyarrow), .npz, or .npy file; the last has one column, named label.

    Raises:
        ValueError: The file is missing, damaged, or of an unknown kind.
        ImportError: A Parquet file, and pyarrow is not installed.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder, not a table: images in one sub-folder for each class are read with --data folder "
            "(load('folder', ...))"
        )
    if not path.is_file():
        raise ValueError(describe_missing(path))
    extension = path.suffix.lower()
    if extension == ".csv":
        return _read_csv(path)
    if extension in (".parquet", ".pq"):
        return read_parquet(path)
    objects: tuple[str, ...] = ()
    if extension == ".npz":
        values, objects = _read_npz(path)
        values = values if objects else verify_checksum(values, path)
    elif extension == ".npy":
        values = {"label": read_npy(path)}
    else:
        raise ValueError(f"{path}: unknown kind of file {extension!r}; it is one of .csv, .parquet, .npz, .npy")
    longest = max((len(array) for array in values.values() if array.ndim), default=0)
    return Columns(path, values, np.arange(1, 1 + longest), objects)


def read_npy(path: Path) -> Array:
    """Return a memory-mapped array: rows are read from disk when they are used."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise ValueError(f"{path} is not an .npy file of plain numbers or text: {error}") from None
    return array


def _read_csv(path: Path) -> Columns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, None)
            if not header:
                raise ValueError(f"{path} is empty; its first line must name the columns, as in path,label,split")
            header = [name.strip() for name in header]
            check_distinct(path, header)
            table, lines = [], []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise ValueError(f"{path} row {reader.line_num} has {len(row)} fields but the header {len(header)}")
                table.append(row)
                lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error.reason}): save it in this encoding") from None
    except csv.Error as error:
        raise ValueError(f"{path} is not a readable CSV file: {error}") from None
    separator = next((sign for sign in ";\t|" if len(header) == 1 and sign in header[0]), None)
    if separator is not None:
        raise ValueError(f"{path} separates its columns by {separator!r}: write a comma between them")
    if not table:
        raise ValueError(f"{path} has a header but no rows")
    columns = zip(header, zip(*table, strict=True), strict=True)
    # a column without a name cannot be asked for
    return Columns(path, {name: np.array(column, dtype=str) for name, column in columns if name}, np.array(lines))


def _read_npz(path: Path) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the arrays, and the names of those that hold Python objects."""
    values, objects = dict[str, Array](), list[str]()
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: it has 0 bytes")
    try:
        if not is_zipfile(path):  # numpy would take it for a pickle
            raise ValueError("numpy.savez writes one")
        with np.load(path, allow_pickle=False) as file:
            check_distinct(path, file.files)
            for name in file.files:
                try:
                    values[name] = file[name]
                except ValueError:  # numpy raises it instead of unpickling
                    objects.append(name)
    except (*UNREADABLE, BadZipFile) as error:
        raise ValueError(f"{path} is not an .npz file of plain numbers and text: {error}") from None
    return values, tuple(objects)
