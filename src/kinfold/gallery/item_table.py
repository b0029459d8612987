"""What is known of the items of a chunk: key, id, label and path, as a Parquet file. Needs pyarrow."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data.items import Array
from kinfold.files.parquet import import_arrow, read_table

_COLUMNS = ("key", "id", "label", "path")
_import_arrow = partial(import_arrow, purpose="a gallery")


@dataclass(frozen=True)
class ItemTable:
    """Columns of equal length.

    Attributes:
        keys: A number for each item that no other item of the gallery ever had, int64 (N,).
        ids, labels, paths: Arrow arrays of strings, (N,).
    """

    keys: Array
    ids: Any
    labels: Any
    paths: Any

    @staticmethod
    def from_lists(keys: Array, ids: Sequence[str], labels: Sequence[str], paths: Sequence[str]) -> "ItemTable":
        """Build a table from Python strings."""
        arrow = _import_arrow()
        return ItemTable(keys, *(arrow.array(values, arrow.string()) for values in (ids, labels, paths)))

    @staticmethod
    def concatenate(tables: Sequence["ItemTable"]) -> "ItemTable":
        """Return the rows of several tables, one after the other."""
        if len(tables) == 1:
            return tables[0]
        arrow = _import_arrow()
        columns = [[getattr(table, name) for table in tables] for name in ("ids", "labels", "paths")]
        keys = np.concatenate([table.keys for table in tables]) if tables else np.zeros(0, dtype=np.int64)
        empty = [arrow.array([], arrow.string())]
        return ItemTable(keys, *(arrow.concat_arrays(column or empty) for column in columns))

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, positions: Array) -> "ItemTable":
        """Return the rows at these positions, in this order."""
        return ItemTable(self.keys[positions], *(column.take(positions) for column in self._strings))

    def find(self, column: str, values: Sequence[str]) -> Array:
        """Return which rows have one of these values in a column of strings, boolean (N,)."""
        arrow, compute = _import_arrow(), _import_arrow("compute")
        wanted = arrow.array([*values], arrow.string())
        return np.asarray(compute.is_in(getattr(self, column), value_set=wanted).to_numpy(zero_copy_only=False))

    def to_parquet(self) -> bytes:
        """Return the contents of a Parquet file."""
        arrow, parquet = _import_arrow(), _import_arrow("parquet")
        table = arrow.table(dict(zip(_COLUMNS, (arrow.array(self.keys), *self._strings), strict=True)))
        content = io.BytesIO()
        parquet.write_table(table, content, compression="zstd")
        return content.getvalue()

    @staticmethod
    def from_parquet(content: Any, count: int, path: Path) -> "ItemTable":
        """Read what `to_parquet` wrote.

        Args:
            content: The bytes of the file.
            count: The number of rows that it must have.
            path: The file, for messages.

        Raises:
            ValueError: It is not such a file.
        """
        arrow = _import_arrow()
        try:
            table = read_table(arrow.BufferReader(content), _COLUMNS).combine_chunks()
            columns = [table.column(name) for name in _COLUMNS]
        except Exception as error:  # pyarrow raises exceptions of its own for a damaged file
            raise ValueError(f"{path} is not a readable table of items: {error}") from None
        types = [arrow.int64(), *[arrow.string()] * 3]
        if [column.type for column in columns] != types or len(table) != count or any(c.null_count for c in columns):
            raise ValueError(f"{path} is damaged: it must hold {count:,} rows of key, id, label and path")
        keys, *strings = (arrow.concat_arrays(column.chunks) for column in columns)
        return ItemTable(keys.to_numpy(), *strings)

    @property
    def _strings(self) -> tuple[Any, Any, Any]:
        return self.ids, self.labels, self.paths
