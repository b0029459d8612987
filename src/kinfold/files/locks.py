"""Folders in which one process works at a time."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kinfold.files.paths import UnsafePathError, describe_link


class FolderLockedError(ValueError):
    """Another process works in the folder."""


_locked: set[tuple[int, int]] = set()  # lock files of this process: its own lockf calls do not exclude each other


@contextmanager
def lock_folder(folder: Path, occupied: str, advice: str, *, create: bool = False) -> Iterator[None]:
    """Nobody else may work in `folder` meanwhile; the hold ends with the process, however that ends.

    Args:
        folder: Holds the lock file, `.lock`.
        occupied: The message where another process, or another part of this one, holds the folder.
        advice: What to do where nothing can be written there.
        create: Make the folder. Its holder may then delete it, with the lock file, before the hold ends.

    Raises:
        Occupied: Somebody else holds the folder.
        OSError: Nothing can be written there.
    """
    path = folder / ".lock"
    while True:
        if _file_id(path) in _locked:  # before it is opened: closing a second descriptor would end the first hold
            raise FolderLockedError(occupied)
        try:
            if create:
                folder.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            if create and folder.parent.is_dir():  # deleted by its last holder between the two calls
                continue
            raise OSError(f"cannot write to {folder}: {os.strerror(errno.ENOENT)}; {advice}") from None
        except OSError as wrong:
            if wrong.errno == errno.ELOOP:
                raise UnsafePathError(describe_link(path, folder)) from None
            raise OSError(f"cannot write to {folder}: {wrong.strerror}; {advice}") from wrong
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise UnsafePathError(f"{path} is not a regular file; delete it")
        try:
            # not flock: worker processes would inherit the hold and keep it for seconds after a kill
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            raise FolderLockedError(occupied) from None
        number = (status.st_dev, status.st_ino)
        if _file_id(path) == number:
            break
        os.close(descriptor)  # the last holder deleted this file: lock the one that is there now
    _locked.add(number)
    try:
        yield
    finally:
        _locked.discard(number)
        os.close(descriptor)


def _file_id(path: Path) -> tuple[int, int] | None:
    """What identifies a file on this machine; None where there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
