"""A file is written completely or not at all, and the error of the disk is shown."""

import json
import os
import re
import subprocess
import sys

import pytest

from kinfold.files.atomic import remove_unfinished, write_atomic, write_json, write_text
from tests.files.victims import victim_is_unchanged


def test_writing_replaces_a_link_and_never_follows_one(folder):
    for name in ("scores.json", f".scores.json.{os.getpid()}.tmp"):
        os.symlink(folder.parent / "victim" / "file", folder / name)
    write_text(folder / "scores.json", "new", folder)
    assert [(path.name, path.is_symlink()) for path in folder.iterdir()] == [("scores.json", False)]
    assert (folder / "scores.json").read_text() == "new"
    assert victim_is_unchanged(folder)


def test_a_folder_in_place_of_the_file_is_named(tmp_path):
    (tmp_path / "out.npz").mkdir()
    with pytest.raises(OSError, match=r"out\.npz is a folder: name a file"):
        write_text(tmp_path / "out.npz", "new")
    assert [*tmp_path.iterdir()] == [tmp_path / "out.npz"]


def test_only_unfinished_files_of_known_names_are_cleared_away(folder):
    for name in (".log.12.tmp", ".notes.12.tmp", ".log.tmp", "log.12.tmp"):
        (folder / name).touch()
    (folder / ".log.13.tmp").mkdir()
    os.symlink(folder.parent / "victim" / "file", folder / ".log.14.tmp")
    remove_unfinished(folder, re.compile("log"), folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {".notes.12.tmp", ".log.tmp", "log.12.tmp", ".log.13.tmp", ".log.14.tmp"}
    assert victim_is_unchanged(folder)


def test_the_message_of_a_read_only_disk_is_not_lost_while_cleaning_up(tmp_path, monkeypatch):
    def read_only(*arguments, **options):
        raise OSError(30, "Read-only file system", "x")

    monkeypatch.setattr(os, "replace", read_only)
    monkeypatch.setattr(type(tmp_path), "unlink", read_only)
    with pytest.raises(
        OSError, match=r"^cannot write .*scores.json: Read-only file system; what was there before is kept"
    ):
        write_text(tmp_path / "scores.json", "x")


def test_the_message_of_a_full_disk_is_not_lost_in_a_library_that_closes_its_file(tmp_path):
    class Full:
        """A file on a full disk; closing an archive on it raises another error."""

        def __init__(self, file):
            self.file = file

        def write(self, content):
            try:
                raise OSError(28, "No space left on device")
            finally:
                raise ValueError("Can't close the ZIP file while there is an open writing handle on it")

    with pytest.raises(OSError, match=r"cannot write .*a.npz: No space left on device"):
        write_atomic(tmp_path / "a.npz", lambda file: Full(file).write(b"x"))
    with pytest.raises(ValueError, match="of another kind"):  # what is no matter of the disk stays as it is
        write_atomic(tmp_path / "a.npz", lambda file: (_ for _ in ()).throw(ValueError("of another kind")))
    assert not [*tmp_path.iterdir()]


def test_an_archive_that_does_not_fit_names_the_disk(tmp_path):
    code = (
        "import resource, sys; import numpy as np; from pathlib import Path\n"
        "from kinfold.files.atomic import write_atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "write_atomic(Path(sys.argv[1]), lambda file: np.savez(file, a=np.zeros(9000), b=np.zeros(9000)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.npz"], capture_output=True, text=True, timeout=60
    )
    assert f"OSError: cannot write {tmp_path / 'a.npz'}: File too large" in process.stderr
    assert not [*tmp_path.iterdir()]


def test_writing_replaces_the_file_and_leaves_no_temporary_file(tmp_path):
    for value in ("one", "two"):
        write_text(tmp_path / "a.txt", value)
        write_json(tmp_path / "b.json", {"value": value, "ü": [1.5, None]})
    assert (tmp_path / "a.txt").read_text() == "two"
    assert json.loads((tmp_path / "b.json").read_bytes()) == {"value": "two", "ü": [1.5, None]}
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "b.json"}


@pytest.mark.parametrize("broken", ["write", "fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_and_reports_it(broken, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "before")

    def full(*args):
        raise OSError(28, "No space left on device")

    if broken != "write":
        monkeypatch.setattr(os, broken, full)
    with pytest.raises(OSError, match=r"cannot write .*a.txt: No space left on device; what was there before is kept"):
        write_atomic(path, full if broken == "write" else lambda file: file.write(b"after"))
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]


def test_an_interrupt_while_writing_is_raised_and_leaves_no_temporary_file(tmp_path):
    def interrupted(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "a.txt", interrupted)
    assert not any(tmp_path.iterdir())


def test_a_file_system_that_cannot_sync_folders_is_accepted(tmp_path, monkeypatch):
    plain = os.fsync

    def only_files(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(22, "Invalid argument")
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    write_text(tmp_path / "a.txt", "there")
    assert (tmp_path / "a.txt").read_text() == "there"
