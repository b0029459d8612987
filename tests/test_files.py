"""No link leads out of a folder, a disk's own message is shown, and one process holds a folder at a time."""

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from kinfold import files
from kinfold.files.atomic import write_atomic, write_text
from kinfold.files.locks import FolderLockedError, lock_folder
from kinfold.files.paths import UnsafePathError


@pytest.fixture
def folder(tmp_path):
    """A folder from somebody else, beside a victim that its links point at."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def victim_is_whole(folder):
    victim = folder.parent / "victim"
    return [path.name for path in victim.iterdir()] == ["file"] and (victim / "file").read_text() == "precious"


ACTIONS = {
    "read": lambda path, within: files.read_bytes(path, within),
    "append": lambda path, within: files.append_text(path, "more", within),
    "cut": lambda path, within: files.keep_first(path, 1, within),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_link_in_place_of_a_file_is_refused(action, folder):
    os.symlink(folder.parent / "victim" / "file", folder / "log")
    with pytest.raises(UnsafePathError, match=r"folder/log is a symbolic link, and no link is followed inside of"):
        ACTIONS[action](folder / "log", folder)
    assert victim_is_whole(folder)


@pytest.mark.parametrize("action", [*ACTIONS, "write", "make", "remove"])
def test_a_link_in_place_of_a_folder_is_refused(action, folder):
    os.symlink(folder.parent / "victim", folder / "inner")
    actions = ACTIONS | {
        "write": lambda path, within: write_text(path, "other", within),
        "make": lambda path, within: files.make_folder(path, within),
        "remove": lambda path, within: files.remove(path, within),
    }
    with pytest.raises(UnsafePathError, match=r"folder/inner is a symbolic link"):
        actions[action](folder / "inner" / "file", folder)
    assert victim_is_whole(folder)


@pytest.mark.parametrize("name", ["../victim/file", "/etc/hostname"])
def test_a_name_that_leaves_the_folder_is_refused(name, folder):
    for action in ACTIONS.values():
        with pytest.raises(UnsafePathError, match=r"leads out of|lies outside of"):
            action(folder / name, folder)
    assert victim_is_whole(folder)


def test_writing_replaces_a_link_and_never_follows_one(folder):
    for name in ("scores.json", f".scores.json.{os.getpid()}.tmp"):
        os.symlink(folder.parent / "victim" / "file", folder / name)
    write_text(folder / "scores.json", "new", folder)
    assert [(path.name, path.is_symlink()) for path in folder.iterdir()] == [("scores.json", False)]
    assert (folder / "scores.json").read_text() == "new"
    assert victim_is_whole(folder)


def test_a_second_name_of_a_file_is_not_changed_through_this_one(folder):
    os.link(folder.parent / "victim" / "file", folder / "log")
    with pytest.raises(UnsafePathError, match="has a second name"):
        files.append_text(folder / "log", "more", folder)
    files.keep_first(folder / "log", 3, folder)
    files.append_text(folder / "log", "!", folder)
    assert (folder / "log").read_text() == "pre!"
    assert victim_is_whole(folder)


def test_a_pipe_is_refused_and_not_waited_for(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(UnsafePathError, match="pipe is not a regular file"):
        files.read_bytes(folder / "pipe", folder)
    with pytest.raises(UnsafePathError, match="pipe is not a regular file"):
        files.read_bytes(folder / "pipe")


def test_only_half_written_files_of_known_names_are_cleared_away(folder):
    for name in (".log.12.tmp", ".notes.12.tmp", ".log.tmp", "log.12.tmp"):
        (folder / name).touch()
    (folder / ".log.13.tmp").mkdir()
    os.symlink(folder.parent / "victim" / "file", folder / ".log.14.tmp")
    files.remove_half_written(folder, re.compile("log"), folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {".notes.12.tmp", ".log.tmp", "log.12.tmp", ".log.13.tmp", ".log.14.tmp"}
    assert victim_is_whole(folder)


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
        """A file on a disk that has no room; whoever closes an archive on it finds it in a state of its own."""

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
        "import resource, sys; import numpy as np; from pathlib import Path; from kinfold.files import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "write_whole(Path(sys.argv[1]), lambda file: np.savez(file, a=np.zeros(9000), b=np.zeros(9000)))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.npz"], capture_output=True, text=True, timeout=60)
    assert f"OSError: cannot write {tmp_path / 'a.npz'}: File too large" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_a_folder_is_held_once_in_a_process_too(tmp_path):
    """Locks of the system do not exclude their own process, and end when it closes the file a second time."""
    other = "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\nfcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def free():
        code = [sys.executable, "-c", other, tmp_path / ".lock"]
        return subprocess.run(code, capture_output=True, timeout=60).returncode == 0

    refused = []

    def second():
        try:
            with lock_folder(tmp_path, "it is held", "advice"):
                pass
        except FolderLockedError as wrong:
            refused.append(str(wrong))

    with lock_folder(tmp_path, "it is held", "advice"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert refused == ["it is held"]
        assert not free()
    assert free()
    with lock_folder(tmp_path, "it is held", "advice"):
        pass


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_a_lock_that_is_no_plain_file_is_refused(kind, folder):
    target = folder.parent / "victim" / ("file" if kind == "link" else "new")
    if kind == "pipe":
        os.mkfifo(folder / ".lock")
    elif kind == "folder":
        (folder / ".lock").mkdir()
    else:
        os.symlink(target, folder / ".lock")
    refusals = r"\.lock is a symbolic link|not a regular file|Is a directory"
    with pytest.raises((UnsafePathError, OSError), match=refusals), lock_folder(folder, "it is held", "advice"):
        pass
    assert victim_is_whole(folder)


def test_the_contents_of_a_lock_file_are_left_alone(folder):
    os.link(folder.parent / "victim" / "file", folder / ".lock")
    with lock_folder(folder, "it is held", "advice"):
        pass
    assert victim_is_whole(folder)


def test_a_holder_may_delete_the_folder_it_holds(tmp_path):
    for _ in range(2):
        with lock_folder(tmp_path / "parts", "it is held", "advice", create=True):
            np.save(tmp_path / "parts" / "a.npy", np.zeros(1))
            for path in (tmp_path / "parts").iterdir():
                path.unlink()
            (tmp_path / "parts").rmdir()
    assert not [*tmp_path.iterdir()]
