"""Files that are written completely or not at all."""

import errno
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from kinfold.files.paths import check_path, read_bytes, remove_file

# what a disk says, whatever the library that was writing made of it
_DISK_ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EIO)
_UNFINISHED = re.compile(r"\.(.+)\.[0-9]+\.tmp", re.DOTALL)


def truncate_file(path: Path, length: int, within: Path) -> None:
    """Forget what stands in a file after so many bytes. A new file takes its place: no other name of it is changed."""
    content = read_bytes(path, within)
    if len(content) > length or os.lstat(path).st_nlink > 1:
        write_atomic(path, lambda file: file.write(content[:length]), within)


def remove_unfinished(folder: Path, names: re.Pattern[str], within: Path) -> None:
    """Delete what `write_whole` left in a folder when its process was killed, of files with these names alone."""
    check_path(folder, within)
    if not folder.is_dir():
        return
    for path in [*folder.iterdir()]:
        half = _UNFINISHED.fullmatch(path.name)
        if half and names.fullmatch(half[1]):
            remove_file(path, within)


def write_atomic(path: Path, write: Callable[[BinaryIO], object], within: Path | None = None) -> None:
    """Write beside `path`, make sure it is on disk, then put it in place; a failure leaves what was there before.

    Args:
        path: The file. A link of this name is replaced, not followed.
        write: Is given the file, open for writing.
        within: A folder; no link is followed between it and the file.

    Raises:
        OSError: What the disk said (full, read-only, ...), with the name of the file.
        UnsafePathError: A link below `within`.
    """
    if within is not None:
        check_path(path.parent, within)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _open_new(temporary) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as wrong:
        with suppress(OSError):  # a disk that cannot be written to cannot be cleaned up; its first message counts
            temporary.unlink(missing_ok=True)
        cause = _disk_error(wrong)
        if cause is None:
            raise
        raise OSError(
            f"cannot write {path}: {cause.strerror or cause}; what was there before is kept. "
            "Make room there, or see to the rights, then try again or resume"
        ) from wrong


def _open_new(path: Path) -> BinaryIO:
    """A file that was not there before. One that was is deleted and never opened: it may be a link."""
    try:
        return open(path, "xb")
    except FileExistsError:
        path.unlink()
        return open(path, "xb")


def _disk_error(wrong: BaseException) -> OSError | None:
    """The error itself, or what the disk said before a library raised something else while it closed its file."""
    if isinstance(wrong, OSError):
        return wrong
    inner = wrong.__cause__ or wrong.__context__
    while isinstance(wrong, Exception) and inner is not None:
        if isinstance(inner, OSError) and inner.errno in _DISK_ERRORS:
            return inner
        inner = inner.__cause__ or inner.__context__
    return None


def _sync_folder(folder: Path) -> None:
    """Have the folder on disk too, so that even a power cut finds the new file; not every file system can do it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str, within: Path | None = None) -> None:
    """Write a text file, whole or not at all; see `write_whole`."""
    write_atomic(path, lambda file: file.write(text.encode()), within)


def write_json(path: Path, value: Any, within: Path | None = None) -> None:
    """Write a JSON file, whole or not at all; results have `kinfold.files.documents.write_result`."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", within)
