"""Tables in memory: data frames of pandas and polars, tables of pyarrow, datasets of Hugging Face.

None of these packages is imported here: an object of theirs brings its own. A column is read when it is asked for, and
images one at a time, when they are used.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from kinfold.data.columns import CellColumn, Columns, check_distinct
from kinfold.data.dataset import SPLITS
from kinfold.data.items import Array
from kinfold.data.parquet import find_class_names, is_image_type, read_values, replace_by_names
from kinfold.optional import import_optional

_KINDS = {
    ("pandas", "DataFrame"): "the data frame",
    ("polars", "DataFrame"): "the data frame",
    ("pyarrow", "Table"): "the table",
    ("datasets", "Dataset"): "the dataset",
    ("datasets", "DatasetDict"): "the dataset",
}
_STREAMS = ("IterableDataset", "IterableDatasetDict")
_SPLIT_NAMES = {**{name: name for name in SPLITS}, "val": "validation", "valid": "validation", "dev": "validation"}


@dataclass(frozen=True)
class MemoryTable:
    """A table in memory.

    Attributes:
        columns: Its columns.
        label: The one column that is typed as a class label; None where there is none, or several.
        split: The split of each row, where the table has splits instead of a column.
    """

    columns: Columns
    label: str | None = None
    split: Array | None = None


def is_memory_table(things: Any) -> bool:
    """Return whether an object is a table that `read_memory_table` reads."""
    return _find_kind(things) is not None


def read_memory_table(things: Any) -> MemoryTable:
    """Return the columns of a table in memory.

    Args:
        things: A DataFrame of pandas or polars, a Table of pyarrow, or a Dataset or DatasetDict of Hugging Face.

    Raises:
        ValueError: Two columns have the same name, or the dataset is a stream without positions.
    """
    kind = _find_kind(things)
    assert kind is not None, "is_memory_table says so first"
    package, name = kind
    if name in _STREAMS:
        raise ValueError(
            "a stream of Hugging Face has no length and no positions: load the dataset without streaming=True, or save "
            "a part of it with Dataset.from_list(list(stream.take(10000)))"
        )
    source = Path(_KINDS[kind])
    if package == "pandas":
        return MemoryTable(_read_frame(things, source))
    if package == "datasets":
        return _read_hub(things, source)
    return MemoryTable(_read_arrow(things.to_arrow() if package == "polars" else things, source))


def _find_kind(things: Any) -> tuple[str, str] | None:
    for base in type(things).__mro__:
        kind = (base.__module__.partition(".")[0], base.__name__)
        if kind in _KINDS or (kind[0] == "datasets" and kind[1] in _STREAMS):
            return kind
    return None


class _LazyColumns(Mapping[str, Array]):
    """Columns by name, each read when it is first asked for."""

    def __init__(self, readers: Mapping[str, Callable[[], Array]]) -> None:
        self._readers = readers
        self._values: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._values:
            self._values[name] = self._readers[name]()
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def _read_frame(frame: Any, source: Path) -> Columns:
    """Columns of a pandas data frame."""
    names = [*map(str, frame.columns)]
    check_distinct(source, names)
    readers: dict[str, Callable[[], Array]] = {}
    images: dict[str, CellColumn] = {}
    for position, name in enumerate(names):
        series = frame.iloc[:, position]
        missing = np.asarray(series.isna(), dtype=bool)
        first = series.iloc[int(np.argmin(missing))] if len(series) else None
        if _is_image_cell(first):
            images[name] = CellColumn(series.to_numpy(), np.full(len(series), ""), missing)
        else:
            readers[name] = _FrameColumn(series, missing)
    return Columns(source, _LazyColumns(readers), np.arange(1, 1 + len(frame)), (), images)


class _FrameColumn:
    """Reads a pandas column: numbers, rows of numbers, or text in which a missing value is empty."""

    def __init__(self, series: Any, missing: Array) -> None:
        self._series, self._missing = series, missing

    def __call__(self) -> Array:
        values = np.asarray(self._series.to_numpy())
        if values.dtype.kind in "iufb" and not self._missing.any():
            return values
        cells = values.tolist() if values.dtype.kind != "O" else [*values]
        if cells and isinstance(cells[0], np.ndarray | list | tuple) and not self._missing.any():
            lengths = {len(cell) for cell in cells}
            return np.array(cells) if len(lengths) == 1 else np.array([" ".join(map(str, cell)) for cell in cells])
        if not self._missing.any() and len({type(cell) for cell in cells}) == 1:
            return np.array(cells)
        return np.array(["" if gone else str(cell) for cell, gone in zip(cells, self._missing, strict=True)])


def _is_image_cell(cell: Any) -> bool:
    if isinstance(cell, np.ndarray):
        return cell.dtype == np.uint8 and cell.ndim > 1
    return isinstance(cell, bytes | bytearray | Image.Image) or (isinstance(cell, Mapping) and "bytes" in cell)


def _read_arrow(table: Any, source: Path) -> Columns:
    check_distinct(source, table.column_names)
    class_names = find_class_names(table.schema.metadata or {})
    readers: dict[str, Callable[[], Array]] = {}
    images: dict[str, CellColumn] = {}
    for name in table.column_names:
        column = table.column(name)
        if is_image_type(column.type):
            missing = np.asarray(column.is_null().to_numpy(), dtype=bool)
            images[name] = CellColumn(_ArrowCells(column), np.full(len(column), ""), missing)
        else:
            readers[name] = _ArrowColumn(column, class_names.get(name))
    return Columns(source, _LazyColumns(readers), np.arange(1, 1 + table.num_rows), (), images)


class _ArrowColumn:
    def __init__(self, column: Any, names: list[str] | None) -> None:
        self._column, self._names = column, names

    def __call__(self) -> Array:
        return replace_by_names(read_values(self._column), self._names)


class _ArrowCells:
    """Cells of an Arrow column, copied out of its memory (or file) one at a time."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: int) -> Any:
        return self._column[index].as_py()


def _read_hub(things: Any, source: Path) -> MemoryTable:
    """Columns of a dataset of Hugging Face, or of all its splits one after another."""
    datasets = import_optional("datasets", "datasets", "datasets", "a dataset of Hugging Face")
    split: Array | None = None
    if isinstance(things, Mapping):
        unknown = [name for name in things if name not in _SPLIT_NAMES]
        if unknown or not things:
            raise ValueError(
                f"unknown split {unknown[0]!r}; known are {', '.join(_SPLIT_NAMES)}: rename it, or give one split"
                if unknown
                else "the dataset has no splits"
            )
        split = np.repeat([_SPLIT_NAMES[name] for name in things], [len(part) for part in things.values()])
        things = datasets.concatenate_datasets([*things.values()])
    readers: dict[str, Callable[[], Array]] = {}
    images: dict[str, CellColumn] = {}
    labels: list[str] = []
    for name, feature in things.features.items():
        part = things.select_columns([name])
        if isinstance(feature, datasets.Image):
            # encoded: Pillow opens it here only where a run uses it, with the formats that kinfold allows
            cells = _HubCells(part.cast_column(name, datasets.Image(decode=False)).with_format(None), name)
            images[name] = CellColumn(cells, np.full(len(part), ""), np.zeros(len(part), dtype=bool))
        else:
            is_class = isinstance(feature, datasets.ClassLabel)
            labels += [name] if is_class else []
            readers[name] = _HubColumn(part, name, feature.names if is_class else None)
    columns = Columns(source, _LazyColumns(readers), np.arange(1, 1 + len(things)), (), images)
    return MemoryTable(columns, labels[0] if len(labels) == 1 else None, split)


class _HubColumn:
    def __init__(self, dataset: Any, name: str, names: list[str] | None) -> None:
        self._dataset, self._name, self._names = dataset, name, names

    def __call__(self) -> Array:
        table = self._dataset.with_format("arrow")[:]
        return replace_by_names(read_values(table.column(self._name)), self._names)


class _HubCells:
    """The images of a column, read from the dataset one at a time."""

    def __init__(self, dataset: Any, name: str) -> None:
        self._dataset, self._name = dataset, name

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index][self._name]
