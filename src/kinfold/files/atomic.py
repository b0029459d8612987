"""Files that are written completely or not at all."""

import errno
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from kinfold.files.paths import check_path, describe_missing_parent, read_bytes, remove_file

# error numbers that come from the disk, whatever exception the writing library raises afterwards
_DISK_ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EIO)
_UNFINISHED = re.compile(r"\.(.+)\.[0-9]+\.tmp", re.DOTALL)


def truncate_file(path: Path, length: int, within: Path) -> None:
    """Cut a file to its first `length` bytes.

    A file with hard links is replaced by a new one, so that its other names keep their content.

    Args:
        path: The file.
        length: Bytes that stay.
        within: A folder; no link is followed between it and the file.

    Raises:
        UnsafePathError: A link below `within`.
    """
    content = read_bytes(path, within)
    if len(content) > length or os.lstat(path).st_nlink > 1:
        write_atomic(path, lambda file: file.write(content[:length]), within)


def remove_unfinished(folder: Path, names: re.Pattern[str], within: Path) -> None:
    """Delete the temporary files that `write_atomic` left behind when its process was killed.

    Args:
        folder: The folder to clean up. It may be missing.
        names: Pattern of the names of the final files. Temporary files of other names stay.
        within: A folder; no link is followed between it and `folder`.
    """
    check_path(folder, within)
    if not folder.is_dir():
        return
    for path in [*folder.iterdir()]:
        match = _UNFINISHED.fullmatch(path.name)
        if match and names.fullmatch(match[1]):
            remove_file(path, within)


def write_atomic(path: Path, write: Callable[[BinaryIO], object], within: Path | None = None) -> None:
    """Write a temporary file beside `path`, flush it to disk, then rename it; on failure the old file stays.

    Args:
        path: The file. A link of this name is replaced, not followed.
        write: Called with the temporary file, open for writing.
        within: A folder; no link is followed between it and the file.

    Raises:
        OSError: The disk is full, read-only, ...; the message names the file.
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
    except BaseException as error:
        with suppress(OSError):  # a disk that cannot be written to cannot be cleaned up either; report the first error
            temporary.unlink(missing_ok=True)
        cause = _find_disk_error(error)
        if cause is None:
            raise
        if not path.parent.is_dir():
            raise OSError(describe_missing_parent(path)) from error
        if path.is_dir():
            raise OSError(f"{path} is a folder: name a file") from error
        raise OSError(
            f"cannot write {path}: {cause.strerror or cause}; what was there before is kept. "
            "Free some space or check the permissions, then try again or resume"
        ) from error


def _open_new(path: Path) -> BinaryIO:
    """Create a file. An existing one is deleted and never opened, because it may be a link."""
    try:
        return open(path, "xb")
    except FileExistsError:
        path.unlink()
        return open(path, "xb")


def _find_disk_error(error: BaseException) -> OSError | None:
    """Return the error itself, or the disk error that a library hid by raising another one while closing its file."""
    if isinstance(error, OSError):
        return error
    inner = error.__cause__ or error.__context__
    while isinstance(error, Exception) and inner is not None:
        if isinstance(inner, OSError) and inner.errno in _DISK_ERRORS:
            return inner
        inner = inner.__cause__ or inner.__context__
    return None


def _sync_folder(folder: Path) -> None:
    """Flush the folder too, so that the new file survives a power cut; not every file system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str, within: Path | None = None) -> None:
    """Write a UTF-8 text file atomically; see `write_atomic`."""
    write_atomic(path, lambda file: file.write(text.encode()), within)


def write_json(path: Path, value: Any, within: Path | None = None) -> None:
    """Write a JSON file atomically; see `write_atomic`. `kinfold.files.documents.write_result` adds a checksum."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", within)
