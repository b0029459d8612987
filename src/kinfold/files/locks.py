"""Locks that let one process at a time work in a folder."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kinfold.files.paths import UnsafePathError, describe_link


class FolderLockedError(ValueError):
    """Another process holds the lock of the folder."""


_locked: set[tuple[int, int]] = (
    set()
)  # lock files held by this process: lockf does not exclude calls of the same process


@contextmanager
def lock_folder(folder: Path, occupied: str, advice: str, *, create: bool = False) -> Iterator[None]:
    """Hold the lock of `folder`; the lock ends with the process, also when it is killed.

    Args:
        folder: The folder; the lock is its file `.lock`.
        occupied: Error message if another process, or another part of this one, holds the lock.
        advice: What to do if nothing can be written there; the end of the error message.
        create: Create the folder. The holder may then delete it, with the lock file, before the lock ends.

    Raises:
        FolderLockedError: The lock is taken.
        OSError: The lock file cannot be written.
    """
    path = folder / ".lock"
    while True:
        if _get_file_id(path) in _locked:  # check before opening: closing a second descriptor would end the first lock
            raise FolderLockedError(occupied)
        try:
            if create:
                folder.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            if create and folder.parent.is_dir():  # its last holder deleted it between the two calls
                continue
            raise OSError(f"cannot write to {folder}: {os.strerror(errno.ENOENT)}; {advice}") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnsafePathError(describe_link(path, folder)) from None
            raise OSError(f"cannot write to {folder}: {error.strerror}; {advice}") from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise UnsafePathError(f"{path} is not a regular file; delete it")
        try:
            # not flock: worker processes would inherit the lock and keep it for seconds after a kill
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            raise FolderLockedError(occupied) from None
        file_id = (status.st_dev, status.st_ino)
        if _get_file_id(path) == file_id:
            break
        os.close(descriptor)  # the last holder deleted this file: lock the one that is there now
    _locked.add(file_id)
    try:
        yield
    finally:
        _locked.discard(file_id)
        os.close(descriptor)


def _get_file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, or None if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
