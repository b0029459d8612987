"""Unpack a downloaded archive so that nothing lands, or leads, outside the chosen folder."""

import bz2
import gzip
import io
import lzma
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, BinaryIO

RATIO = 100  # what an archive may grow by; text shrinks by about 10, zeros by 1,000
ALWAYS_ALLOWED = 256 << 20  # bytes, for small archives of texts
ENTRY = 512  # bytes that an entry takes beside its content
LARGEST_HEADER = 16 << 20  # bytes
Entry = tuple[str, IO[bytes] | None, str | None]  # name, content (None: a folder), target of a link


def unpack(archive: Path | str, folder: Path | str, limit: int | None = None) -> Path:
    """Unpack a .tar, .tar.gz (.tgz), .tar.bz2, .tar.xz or .zip file into `folder` and return the folder.

    Refused, before anything is written: absolute paths, paths with '..', links that lead out of the folder, devices
    and pipes, and archives that unpack to more than `limit`. Permissions and owners of the archive are not applied.

    Args:
        archive: The file to unpack.
        folder: Where to; it is made where it does not exist.
        limit: Bytes that may be written. Where left out, `RATIO` times the size of the archive, and at least
            `ALWAYS_ALLOWED`. Images hardly shrink in an archive; one that grows a hundred times is no data set.

    Raises:
        ValueError: For an archive that is refused, damaged or of another kind.
    """
    archive, folder = Path(archive), Path(folder)
    if not archive.is_file():
        raise ValueError(f"there is no file {archive}")
    allowed = max(ALWAYS_ALLOWED, RATIO * archive.stat().st_size) if limit is None else limit
    budget = _Budget(archive, allowed)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                _check_zip(archive, opened, budget)
                _write(archive, folder, _zip_entries(opened))
        else:
            with _decompressed(archive) as stream, _opened_tar(archive, stream) as tape:
                _check_tar(archive, tape, budget)
                _write(archive, folder, _tar_entries(tape))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError) as broken:
        raise ValueError(f"{archive} is cut short or corrupt: {broken}; fetch it again") from None
    return folder


class _Budget:
    """Adds up what an archive would write, and refuses it as soon as that is too much."""

    def __init__(self, archive: Path, limit: int) -> None:
        self.archive, self.limit, self.total = archive, limit, 0

    def spend(self, size: int) -> None:
        """Count one entry; empty ones take room in the file system, too."""
        self.total += size + ENTRY
        if self.total > self.limit:
            raise ValueError(
                f"{self.archive} is refused: its {self.archive.stat().st_size:,} bytes unpack to more than "
                f"{self.limit:,}. Where that is right, allow more with unpack(..., limit=BYTES)"
            )


class _Stream(io.RawIOBase):
    """A decompressed tar file that refuses to read a huge header into memory.

    The content of entries is read a megabyte at a time; only headers with long names are read at once.
    """

    def __init__(self, archive: Path, inner: BinaryIO) -> None:
        self._archive, self._inner = archive, inner

    def read(self, size: int = -1, /) -> bytes:
        if size < 0 or size > LARGEST_HEADER:
            raise ValueError(f"{self._archive} is refused: it has a header of {size:,} bytes")
        return self._inner.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()


@contextmanager
def _decompressed(archive: Path) -> Iterator[_Stream]:
    with archive.open("rb") as file:
        first = file.read(6)
    openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    opener = next((opener for magic, opener in openers.items() if first.startswith(magic)), open)
    with opener(archive, "rb") as inner:
        yield _Stream(archive, inner)


def _opened_tar(archive: Path, stream: _Stream) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=stream, mode="r:")
    except (tarfile.ReadError, OSError, lzma.LZMAError):  # at its first entry
        raise ValueError(f"{archive} is neither a tar nor a zip file") from None


def _check_name(archive: Path, name: str) -> None:
    windows = PureWindowsPath(name)
    if PurePosixPath(name).is_absolute() or windows.anchor or ".." in windows.parts:
        raise ValueError(f"{archive} is refused: its entry {name!r} leads out of the folder")


def _check_tar(archive: Path, tape: tarfile.TarFile, budget: _Budget) -> None:
    sizes: dict[str, int] = {}
    links: list[tuple[str, str]] = []
    for member in tape:
        _check_name(archive, member.name)
        if member.issym() or member.islnk():
            target = _target(member)
            _check_link(archive, member.name, target)
            links.append((member.name, target))
        elif not (member.isfile() or member.isdir()):
            raise ValueError(f"{archive} is refused: its entry {member.name!r} is a device or a pipe")
        _check_with_library(archive, member)
        budget.spend(member.size)
        sizes[posixpath.normpath(member.name)] = member.size
    for name, target in links:  # each becomes a copy
        size = sizes.get(posixpath.normpath(target), 0)
        budget.spend(size)
        sizes[posixpath.normpath(name)] = size


def _check_with_library(archive: Path, member: tarfile.TarInfo) -> None:
    """Have the standard library's own rules for data archives pass the entry as well."""
    check = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
    try:
        if check is not None:
            check(member, str(archive.parent.resolve()))
    except tarfile.FilterError as refused:
        raise ValueError(f"{archive} is refused: {refused}") from None


def _target(member: tarfile.TarInfo) -> str:
    """What a link names, from the top of the archive."""
    return str(PurePosixPath(member.name).parent / member.linkname) if member.issym() else member.linkname


def _check_link(archive: Path, name: str, target: str) -> None:
    depth = 0
    for part in PureWindowsPath(target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            break
    if depth < 0 or PureWindowsPath(target).anchor:
        raise ValueError(f"{archive} is refused: its link {name!r} leads out of the folder, to {target!r}")


def _check_zip(archive: Path, opened: zipfile.ZipFile, budget: _Budget) -> None:
    for member in opened.infolist():
        _check_name(archive, member.filename)
        budget.spend(member.file_size)  # no more than this is read of it
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"{archive} is refused: its entry {member.filename!r} is a link or a device")
        if member.flag_bits & 1:
            raise ValueError(f"{archive} is encrypted; unpack it with its password by a tool of your own")


def _tar_entries(tape: tarfile.TarFile) -> Iterator[Entry]:
    for member in tape:
        if member.isdir():
            yield member.name, None, None
        elif member.issym() or member.islnk():
            yield member.name, None, _target(member)
        else:
            yield member.name, tape.extractfile(member), None


def _zip_entries(opened: zipfile.ZipFile) -> Iterator[Entry]:
    for member in opened.infolist():
        if member.is_dir():
            yield member.filename, None, None
        else:
            with opened.open(member) as content:
                yield member.filename, content, None


def _write(archive: Path, folder: Path, entries: Iterator[Entry]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    home = folder.resolve()
    ready: set[Path] = set()  # folders that exist and were found to lie inside; no link is made before the end
    links = []
    for name, content, link in entries:
        place = folder / name
        inner = place if content is None and link is None else place.parent
        if inner not in ready:
            _inside(archive, home, inner)
            inner.mkdir(parents=True, exist_ok=True)
            ready.add(inner)
        if link is not None:
            links.append((place, folder / link))
        elif content is not None:
            if place.is_symlink():
                _inside(archive, home, place)
            with content, place.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
    # links come last, as copies of what they name: no file can be written through one, and none is left to follow
    for place, target in links:
        source = target.resolve()
        if not source.is_relative_to(home) or not source.is_file():
            raise ValueError(f"{archive} is refused: the link {place} names {target}, which is no file of the archive")
        _inside(archive, home, place)
        shutil.copyfile(source, place)


def _inside(archive: Path, home: Path, place: Path) -> None:
    # a link that was in the folder before must not carry anything out of it
    if not place.resolve().is_relative_to(home):
        raise ValueError(f"{archive} is refused: {place} leads out of {home} by a link that is there already")
