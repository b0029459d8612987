"""Files below a folder that another person may have created, without following links out of it.

A run or bench folder may come from another person. With `within=folder` every path below that
folder is checked: symbolic links and everything that is not a regular file are refused.
"""

import difflib
import errno
import mmap
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


class UnsafePathError(ValueError):
    """A path leaves its folder by a link or by "..", or is not a regular file or folder."""


def describe_missing(path: Path | str, kind: str = "file") -> str:
    """Return the error message for a missing file or folder, with the nearest name beside it.

    Args:
        path: What was asked for.
        kind: What it should have been.
    """
    path = Path(path)
    try:
        names = [entry.name for entry in os.scandir(path.parent) if not entry.name.startswith(".")]
    except OSError:  # no folder that can be read: the message about its child is enough
        names = []
    nearest = difflib.get_close_matches(path.name, names, n=1, cutoff=0.75)
    return f"there is no {kind} {path}" + (f" (did you mean {str(path.with_name(nearest[0]))!r}?)" if nearest else "")


def refuse_input(out: Path, *inputs: Path | str | None) -> None:
    """Refuse an output file that is one of the files that are read.

    Raises:
        ValueError: It would replace what it is made from.
    """
    for source in inputs:
        if source is not None and Path(source).is_file() and out.exists() and out.samefile(source):
            raise ValueError(f"{out} is read by this command and would be lost: write to another file")


def describe_missing_parent(path: Path) -> str:
    """Return the error message for a file that is to be written into a missing folder."""
    return f"there is no folder {path.parent} to write {path.name} to"


def check_parent(path: Path) -> None:
    """Refuse a file in a missing folder, before the work whose result it gets.

    Raises:
        ValueError: There is no such folder.
    """
    if not path.parent.is_dir():
        raise ValueError(describe_missing_parent(path))


def check_path(path: Path, within: Path) -> None:
    """Refuse a path that goes through a link.

    Args:
        path: A file or folder below `within`; it need not exist.
        within: The folder that must not be left. It may be a link itself, because the user named it.

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
            raise UnsafePathError(describe_link(current, within))


def describe_link(path: Path, within: Path) -> str:
    """Return the error message for a link below `within`."""
    return (
        f"{path} is a symbolic link, and no link is followed inside of {within}: put the file or folder itself there, "
        f"or delete the link ({within.name or within} itself may be a link)"
    )


def read_bytes(path: Path, within: Path | None = None) -> bytes:
    """Read a regular file.

    Args:
        path: The file.
        within: A folder; no link is followed below it. Without one, links are followed as usual.

    Raises:
        UnsafePathError: The path is a link or not a regular file (reading a named pipe would block).
        OSError: The file is missing or cannot be read.
    """
    with _open_regular(path, os.O_RDONLY, within) as file:
        return file.read()


def open_mapped(path: Path, within: Path) -> mmap.mmap:
    """Map a regular file below `within` into memory. Writing to the memory does not change the file.

    Raises:
        UnsafePathError: The path goes through a link, or is not a regular file.
        ValueError: The file is missing, empty or cannot be read.
    """
    try:
        with _open_regular(path, os.O_RDONLY, within) as file:
            return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnsafePathError:
        raise
    except ValueError:
        raise ValueError(f"{path} is damaged: it is empty") from None


def append_text(path: Path, text: str, within: Path) -> None:
    """Append text to a file below `within`; a missing file is created."""
    with open_append(path, within) as file:
        file.write(text.encode())


def open_append(path: Path, within: Path) -> BinaryIO:
    """Open a file below `within` for appending; a file with hard links is refused.

    Raises:
        UnsafePathError: The path goes through a link, or the file has a second name (a hard link).
    """
    file = _open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, within)
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise UnsafePathError(
            f"{path} has a second name somewhere else (a hard link), where it would be changed too: "
            "replace it by a copy"
        )
    return file


def _open_regular(path: Path, flags: int, within: Path | None) -> BinaryIO:
    if within is not None:
        check_path(path, within)
        flags |= os.O_NOFOLLOW
    mode = "ab" if flags & os.O_APPEND else "rb"

    def opener(name: str, _: int) -> int:
        try:
            # O_NONBLOCK: opening a named pipe must not block
            return os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP and within is not None:
                raise UnsafePathError(describe_link(path, within)) from None
            raise

    if os.path.isdir(path):  # open() would report it only after the opener returned
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    file = open(path, mode, opener=opener)  # noqa: SIM115  (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UnsafePathError(f"{path} is not a regular file; delete it, or put the file itself there")
    return file  # type: ignore[return-value]  # both modes are binary


def make_folder(path: Path, within: Path) -> None:
    """Create a folder below `within`, with its parents; an existing one stays."""
    check_path(path, within)
    path.mkdir(parents=True, exist_ok=True)


def remove_file(path: Path, within: Path) -> None:
    """Delete a regular file below `within`; a missing file and everything else is ignored."""
    check_path(path.parent, within)
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            path.unlink()
