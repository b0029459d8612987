"""Columns of a CSV, Parquet, .npz or .npy file as arrays of numbers or text; nothing is ever unpickled."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

from kinfold import registry
from kinfold.data.items import Array
from kinfold.files.checksums import verify_checksum
from kinfold.optional import import_optional

# what numpy raises for files that are damaged, nested too deep, or announce more than the memory holds
UNREADABLE = (ValueError, OSError, EOFError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Columns:
    """Named columns of equal length; `rows` are the line numbers of a CSV, else a count from 1.

    `objects` are columns of Python objects or nested values, which nobody reads; they do no harm as long as nobody asks
    for them. `images` are columns of encoded images (Parquet): bytes, or the structs {bytes, path} of Hugging Face.
    """

    path: Path
    values: dict[str, Array]
    rows: Array
    objects: tuple[str, ...] = ()
    images: dict[str, "ImageColumn"] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [*self.values, *self.objects, *self.images]

    def get(self, name: str) -> Array | None:
        """A column, or None where there is none of this name."""
        return self.require(name) if name in self.names else None

    def require(self, name: str, hint: str = "") -> Array:
        """A column that must be there; `hint` says how to point to it."""
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
            has = f"{self.path} has no column {name!r}{near}; it has {', '.join(self.names)}"
            raise ValueError(f"{has}. {hint}" if hint else has)
        return self.values[name]

    def require_filled(self, name: str, hint: str) -> Array:
        """A required column of words without an empty one; the row of an empty one is named."""
        words = self.require(name, hint).astype(str)
        empty = np.flatnonzero(words == "")
        if len(empty):
            raise ValueError(f"{self.path} row {self.rows[empty[0]]}: {name} is empty")
        return words


@dataclass(frozen=True)
class ImageColumn:
    """Encoded images, one after the other in `buffer`; `names` are their paths where there are any.

    `missing` (N,) is True where a row has no bytes.
    """

    buffer: Array
    starts: Array
    ends: Array
    names: Array
    missing: Array


def explain_column_option(key: str) -> str:
    """How to say which column is meant."""
    typed = f"--set data.options.columns.{key}=... on the command line"
    return f"Say which one it is: columns={{{key!r}: ...}} in Python, {typed}"


def resolve_column_names(columns: Mapping[str, str] | None, known: tuple[str, ...]) -> dict[str, str]:
    """The name in the file of each known column: its own, unless `columns` gives another."""
    for key in columns or {}:
        if key not in known:
            raise ValueError(f"unknown column {key!r}{registry.suggest(key, known)}; known are {', '.join(known)}")
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
        return _parquet(path)
    elif ending == ".npz":
        values, objects = _npz(path)
        values = values if objects else verify_checksum(values, path)
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
    except UNREADABLE as unreadable:
        raise ValueError(f"{path} is not an .npy file of plain numbers or text: {unreadable}") from None
    return array


def _csv(path: Path) -> Columns:
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
    except (csv.Error, UnicodeDecodeError) as unreadable:
        raise ValueError(f"{path} is not a readable CSV file: {unreadable}") from None
    if not table:
        raise ValueError(f"{path} has a header but no rows")
    cells = zip(*table, strict=True)
    columns = zip(header, cells, strict=True)
    values = {name: np.array(column, dtype=str) for name, column in columns if name}  # the others cannot be asked for
    return Columns(path, values, np.array(lines))


def check_distinct(path: Path, names: Sequence[str]) -> None:
    """Refuse a table with two columns of one name: it is not known which of them is meant."""
    for place, name in enumerate(names):
        if name and name in names[:place]:
            first = names.index(name)
            raise ValueError(
                f"{path} has two columns {name!r}, at positions {first + 1} and {place + 1}; rename or remove one"
            )


def _parquet(path: Path) -> Columns:
    parquet = import_optional("pyarrow.parquet", "pyarrow", "parquet", f"reading {path}")
    types = import_optional("pyarrow.types", "pyarrow", "parquet", f"reading {path}")
    try:
        table = parquet.read_table(str(path))
    except Exception as unreadable:  # pyarrow raises kinds of its own for a cut or foreign file
        raise ValueError(f"{path} is not a readable Parquet file: {unreadable}") from None
    check_distinct(path, table.column_names)
    class_names = _class_names(table.schema.metadata or {})
    values, objects, images = dict[str, Array](), list[str](), dict[str, ImageColumn]()
    for name in table.column_names:
        column = table.column(name)
        if holds_images(column.type):
            images[name] = _image_column(column)
        elif types.is_struct(column.type) or types.is_map(column.type) or types.is_union(column.type):
            objects.append(name)
        else:
            values[name] = _named(_parquet_column(column), class_names.get(name))
    return Columns(path, values, np.arange(1, 1 + table.num_rows), tuple(objects), images)


def holds_images(kind: Any) -> bool:
    """Whether a column of this Arrow type holds encoded images: bytes, or the structs {bytes, path} of Hugging Face."""
    types = import_optional("pyarrow.types", "pyarrow", "parquet", "reading Parquet")
    if types.is_struct(kind):
        inner = {kind.field(place).name: kind.field(place).type for place in range(kind.num_fields)}
        return "bytes" in inner and set(inner) <= {"bytes", "path"} and _is_bytes(types, inner["bytes"])
    return _is_bytes(types, kind)


def _is_bytes(types: Any, kind: Any) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _image_column(column: Any) -> ImageColumn:
    arrow = import_optional("pyarrow", "pyarrow", "parquet", "reading Parquet")
    compute = import_optional("pyarrow.compute", "pyarrow", "parquet", "reading Parquet")
    names = np.full(len(column), "")
    if arrow.types.is_struct(column.type):
        if column.type.get_field_index("path") >= 0:
            names = np.array([path or "" for path in compute.struct_field(column, "path").to_pylist()], dtype=str)
        column = compute.struct_field(column, "bytes")
    missing = np.asarray(column.is_null().to_numpy(), dtype=bool)
    whole = arrow.concat_arrays(column.cast(arrow.large_binary()).chunks or [arrow.array([], arrow.large_binary())])
    _, offsets, content = whole.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[whole.offset : whole.offset + len(whole) + 1]
    buffer = np.zeros(0, dtype=np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    return ImageColumn(buffer, places[:-1], places[1:], names, missing)


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Names of numbered classes by column, from the note that Hugging Face's library leaves in a Parquet file."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        found = {name: about["names"] for name, about in features.items() if about.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # no such note, or one by somebody else
        return {}
    return {
        name: names
        for name, names in found.items()
        if isinstance(names, list) and all(isinstance(word, str) for word in names) and len({*names}) == len(names)
    }


def _named(numbers: Array, names: list[str] | None) -> Array:
    """Names instead of numbers; -1, which stands for no label, becomes empty text."""
    if names is None or numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        return numbers
    if numbers.min() < -1 or numbers.max() >= len(names):
        return numbers
    return np.array([*names, ""])[numbers]


def _parquet_column(column: Any) -> Array:
    """Numbers, text, or equally long lists of numbers as an array; a missing cell becomes empty text."""
    compute = import_optional("pyarrow.compute", "pyarrow", "parquet", "reading Parquet")
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
            check_distinct(path, file.files)
            for name in file.files:
                try:
                    values[name] = file[name]
                except ValueError:  # what numpy says instead of unpickling
                    objects.append(name)
    except (*UNREADABLE, BadZipFile) as unreadable:
        raise ValueError(f"{path} is not an .npz file of plain numbers and text: {unreadable}") from None
    return values, tuple(objects)
