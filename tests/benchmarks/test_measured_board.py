"""The board of this project: what stands in the repository belongs together, and what a new entry keeps."""

import pytest
from benchmarks.measured_board import describe_entry, format_page, name_entry, read_tables, restore_entry, write

from benchmarks import measured_board
from kinfold.board import Board, read_entries
from kinfold.experiments import Bench
from kinfold.files.checksums import compute_sha256
from tests.experiments.tiny import run_inline, suite


def test_the_page_is_made_from_the_file_beside_it_whose_checksum_holds():
    tables = read_tables(measured_board.FOLDER)  # raises where the file was changed
    assert tables
    assert (measured_board.FOLDER / "board.md").read_text() == format_page(tables)


def test_no_entry_names_a_folder_of_the_machine_that_measured_it():
    for table in read_tables(measured_board.FOLDER):
        assert "/" not in table["tables"]["data"]["root"], name_entry(table)
        assert len(table["digest"]) == 64


def test_an_entry_is_described_and_restored(tmp_path):
    run_inline(suite(tmp_path, seeds=[0, 1]), tmp_path / "tiny")
    board = Board.open([tmp_path / "tiny"])
    (entry,) = read_entries(Bench.open(tmp_path / "tiny"))
    described = describe_entry(entry)
    assert name_entry(described) == entry.name
    assert described["digest"] == entry.digest
    assert str(tmp_path) not in str(described)
    restored = restore_entry(described)
    assert (restored.values, restored.starts, restored.codes) == (entry.values, entry.starts, entry.codes)
    write([described], tmp_path / "board")
    assert read_tables(tmp_path / "board") == [described]
    assert board.table("markdown") in (tmp_path / "board/board.md").read_text()


def test_a_changed_file_is_refused(tmp_path):
    write([], tmp_path)
    path = tmp_path / "entries.json"
    before = compute_sha256(path.read_bytes())
    path.write_text(path.read_text().replace("[]", '[{"digest": "0"}]'))
    assert compute_sha256(path.read_bytes()) != before
    with pytest.raises(ValueError, match="sha256 differs"):
        read_tables(tmp_path)
