"""Parquet files, read by pyarrow without its threads."""

from collections.abc import Sequence
from typing import Any

from kinfold.optional import import_optional


def import_arrow(module: str = "", purpose: str = "reading Parquet files") -> Any:
    """Import pyarrow, or a module of it.

    Args:
        module: Such as "compute".
        purpose: What it is needed for, for the error message.

    Raises:
        ImportError: pyarrow is not installed.
    """
    return import_optional(f"pyarrow.{module}" if module else "pyarrow", "pyarrow", "parquet", purpose)


def read_table(source: Any, columns: Sequence[str] | None = None, purpose: str = "reading Parquet files") -> Any:
    """Read the table of a Parquet file.

    `pyarrow.parquet.read_table` starts threads that may still live when the interpreter ends, which then aborts the
    process with "terminate called without an active exception" (apache/arrow#34314). This does not start them.

    Args:
        source: A path, or a reader of pyarrow.
        columns: Names of the columns; all of them by default.
        purpose: What it is needed for, for the error message.

    Returns:
        A `pyarrow.Table`.
    """
    parquet = import_arrow("parquet", purpose)
    with parquet.ParquetFile(source, pre_buffer=False) as file:
        return file.read(columns=None if columns is None else [*columns], use_threads=False)
