"""Files that appear whole or not at all, that no link leads out of a folder, and folders that one process holds.

A run or bench folder may come from somebody else. Whoever passes `within=folder` has every path below that folder
checked: a symbolic link there is refused, and so is anything that is no regular file. Nothing of a folder is opened,
written, truncated or deleted but by the functions here.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

# what a disk says, whatever the library that was writing made of it
_DISK_ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EIO)
_HALF_WRITTEN = re.compile(r"\.(.+)\.[0-9]+\.tmp", re.DOTALL)


class UnsafePathError(ValueError):
    """A path leads out of its folder by a link or by "..", or is something else than a plain file or folder."""


def check_path(path: Path, within: Path) -> None:
    """Refuse a path that reaches its place through a link.

    Args:
        path: A file or folder below `within`; it need not exist.
        within: The folder that must not be left. It may be a link itself: its owner named it.

    Raises:
        UnsafePathError: A component below `within` is a symbolic link or "..".
    """
    try:
        components = path.relative_to(within).parts
    except ValueError:
        raise UnsafePathError(f"{path} lies outside of {within}") from None
    current = within
    for component in components:
        if component == "..":
            raise UnsafePathError(f"{path} leads out of {within}")
        current = current / component
        try:
            mode = os.lstat(current).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISLNK(mode):
            raise UnsafePathError(_refusal(current, within))


def _refusal(path: Path, within: Path) -> str:
    return (
        f"{path} is a symbolic link, and no link is followed inside of {within}: put the file or folder itself there, "
        f"or delete the link ({within.name or within} itself may be a link)"
    )


def read_bytes(path: Path, within: Path | None = None) -> bytes:
    """The contents of a regular file.

    Args:
        path: The file.
        within: A folder; no link is followed below it. Without one, links are followed as usual.

    Raises:
        UnsafePathError: A link, or no regular file (a named pipe would wait for ever).
        OSError: It is missing or cannot be read.
    """
    with _open_regular(path, os.O_RDONLY, within) as file:
        return file.read()


def append_text(path: Path, text: str, within: Path) -> None:
    """Add to the end of a file below `within`, which is made where it is missing."""
    with open_append(path, within) as file:
        file.write(text.encode())


def open_append(path: Path, within: Path) -> BinaryIO:
    """A file below `within`, open to add to its end; one with a second name (a hard link) is refused."""
    file = _open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, within)
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise UnsafePathError(
            f"{path} has a second name somewhere else (a hard link), where it would be changed too: "
            "replace it by a copy of its own"
        )
    return file


def keep_first(path: Path, length: int, within: Path) -> None:
    """Forget what stands in a file after so many bytes. A new file takes its place: no other name of it is changed."""
    content = read_bytes(path, within)
    if len(content) > length or os.lstat(path).st_nlink > 1:
        write_whole(path, lambda file: file.write(content[:length]), within)


def _open_regular(path: Path, flags: int, within: Path | None) -> BinaryIO:
    if within is not None:
        check_path(path, within)
        flags |= os.O_NOFOLLOW
    mode = "ab" if flags & os.O_APPEND else "rb"

    def opener(name: str, _: int) -> int:
        try:
            # a named pipe must not be waited for
            return os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except OSError as wrong:
            if wrong.errno == errno.ELOOP and within is not None:
                raise UnsafePathError(_refusal(path, within)) from None
            raise

    if os.path.isdir(path):  # open would say so only after the opener returned
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    file = open(path, mode, opener=opener)  # noqa: SIM115  (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UnsafePathError(f"{path} is not a regular file; delete it, or put the file itself there")
    return file  # type: ignore[return-value]  # both modes are binary


def make_folder(path: Path, within: Path) -> None:
    """Make a folder below `within`, and those between; one that is there already stays."""
    check_path(path, within)
    path.mkdir(parents=True, exist_ok=True)


def remove(path: Path, within: Path) -> None:
    """Delete a regular file below `within`; anything else, and what is not there, is left alone."""
    check_path(path.parent, within)
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            path.unlink()


def remove_half_written(folder: Path, names: re.Pattern[str], within: Path) -> None:
    """Delete what `write_whole` left in a folder when its process was killed, of files with these names alone."""
    check_path(folder, within)
    if not folder.is_dir():
        return
    for path in [*folder.iterdir()]:
        half = _HALF_WRITTEN.fullmatch(path.name)
        if half and names.fullmatch(half[1]):
            remove(path, within)


def write_whole(path: Path, write: Callable[[BinaryIO], object], within: Path | None = None) -> None:
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
        _keep_name(path.parent)
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


def _keep_name(folder: Path) -> None:
    """Have the folder on disk too, so that even a power cut finds the new file; not every file system can do it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str, within: Path | None = None) -> None:
    """Write a text file, whole or not at all; see `write_whole`."""
    write_whole(path, lambda file: file.write(text.encode()), within)


def write_json(path: Path, value: Any, within: Path | None = None) -> None:
    """Write a JSON file, whole or not at all; see `write_whole`. Results have `kinfold.documents.write_result`."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", within)


def sha256_of(content: bytes | bytearray) -> str:
    return hashlib.sha256(content).hexdigest()


def defined(value: Any) -> Any:
    """The same with null for undefined numbers, inside of lists and tables too: NaN is not JSON."""
    if isinstance(value, dict):
        return {key: defined(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [defined(inner) for inner in value]
    return None if isinstance(value, float) and value != value else value


class Occupied(ValueError):  # noqa: N818  (a state, not an error of its own)
    """Another process works in the folder."""


_held: set[tuple[int, int]] = set()  # lock files of this process: its own lockf calls do not exclude each other


@contextmanager
def held(folder: Path, occupied: str, advice: str, *, create: bool = False) -> Iterator[None]:
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
        if _number(path) in _held:  # before it is opened: closing a second descriptor would end the first hold
            raise Occupied(occupied)
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
                raise UnsafePathError(_refusal(path, folder)) from None
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
            raise Occupied(occupied) from None
        number = (status.st_dev, status.st_ino)
        if _number(path) == number:
            break
        os.close(descriptor)  # the last holder deleted this file: lock the one that is there now
    _held.add(number)
    try:
        yield
    finally:
        _held.discard(number)
        os.close(descriptor)


def _number(path: Path) -> tuple[int, int] | None:
    """What identifies a file on this machine; None where there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
