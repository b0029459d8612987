"""One process at a time holds the lock of a folder."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from kinfold.files.locks import FolderLockedError, lock_folder
from kinfold.files.paths import UnsafePathError
from tests.files.victims import victim_is_unchanged


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
        except FolderLockedError as error:
            refused.append(str(error))

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
    assert victim_is_unchanged(folder)


def test_the_contents_of_a_lock_file_are_left_alone(folder):
    os.link(folder.parent / "victim" / "file", folder / ".lock")
    with lock_folder(folder, "it is held", "advice"):
        pass
    assert victim_is_unchanged(folder)


def test_a_holder_may_delete_the_folder_it_holds(tmp_path):
    for _ in range(2):
        with lock_folder(tmp_path / "parts", "it is held", "advice", create=True):
            np.save(tmp_path / "parts" / "a.npy", np.zeros(1))
            for path in (tmp_path / "parts").iterdir():
                path.unlink()
            (tmp_path / "parts").rmdir()
    assert not [*tmp_path.iterdir()]
