"""Parquet files are read without threads, which could abort the process at its end."""

import subprocess
import sys
from pathlib import Path

import pytest

from kinfold.files.parquet import import_arrow, read_table

COUNT = """
import os
import sys

import pyarrow
import pyarrow.parquet

from kinfold.files.parquet import read_table

read = {"plain": read_table, "arrow": pyarrow.parquet.read_table}[sys.argv[1]]
before = len(os.listdir("/proc/self/task"))
assert read(sys.argv[2]).num_rows == 5000
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.fixture
def file(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), import_arrow("parquet")
    table = arrow.table({name: [f"{name}{row}" for row in range(5000)] for name in "abcd"})
    parquet.write_table(table, tmp_path / "table.parquet", row_group_size=500)
    return tmp_path / "table.parquet"


def count_new_threads(mode: str, file: Path) -> int:
    process = subprocess.run([sys.executable, "-c", COUNT, mode, str(file)], capture_output=True, check=True)
    return int(process.stdout)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted through /proc")
def test_reading_starts_no_threads(file):
    assert count_new_threads("plain", file) == 0 < count_new_threads("arrow", file)


def test_columns_are_read_in_the_order_of_the_file(file):
    assert read_table(file).column_names == ["a", "b", "c", "d"]
    table = read_table(file, ["d", "b"])
    assert {name: table.column(name)[4999].as_py() for name in table.column_names} == {"b": "b4999", "d": "d4999"}


def test_without_pyarrow_the_purpose_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.compute", None)
    with pytest.raises(ImportError, match="a gallery"):
        import_arrow("compute", "a gallery")
