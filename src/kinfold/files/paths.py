"""Files and folders below a folder that somebody else may have made: no link is followed out of it.

A run or bench folder may come from another person. A caller that passes `within=folder` has every path below that
folder checked: symbolic links and everything that is not a regular file are refused.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


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
            raise UnsafePathError(describe_link(current, within))


def describe_link(path: Path, within: Path) -> str:
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
                raise UnsafePathError(describe_link(path, within)) from None
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


def remove_file(path: Path, within: Path) -> None:
    """Delete a regular file below `within`; anything else, and what is not there, is left alone."""
    check_path(path.parent, within)
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            path.unlink()
