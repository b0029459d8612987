"""Extraction of downloaded archives: nothing is written, and no link leads, outside the chosen folder.

The tar rules are those of the standard library (`tarfile.data_filter`). On top of them come a limit on the size, a
limit on the length of headers, and Windows paths. The whole archive is checked before anything is written.
"""

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
from typing import Any, BinaryIO

RATIO = 100  # largest allowed growth; text shrinks by a factor of about 10 in an archive, zeros by 1,000
ALWAYS_ALLOWED = 256 << 20  # bytes, for small archives of texts
ENTRY = 512  # bytes counted for an entry in addition to its content
LARGEST_HEADER = 16 << 20  # bytes


def unpack(archive: Path | str, folder: Path | str, limit: int | None = None) -> Path:
    """Extract a .tar, .tar.gz (.tgz), .tar.bz2, .tar.xz or .zip file.

    An archive is refused before anything is written if it holds absolute paths, paths with '..', links that lead out of
    the folder, devices or pipes, or if it would write more than `limit` bytes. Permissions and owners in the archive
    are not applied. Links become copies of the files that they name.

    Args:
        archive: Path of the archive.
        folder: Folder to write to. It is created if it does not exist.
        limit: Largest number of bytes to write. The default is `RATIO` times the size of the archive, and at least
            `ALWAYS_ALLOWED`: images hardly shrink in an archive, so one that grows a hundred times is not a dataset.

    Returns:
        `folder` as a path.

    Raises:
        ValueError: The archive is missing, refused, damaged, or of an unknown format.
    """
    archive, folder = Path(archive), Path(folder)
    if not archive.is_file():
        raise ValueError(f"there is no file {archive}")
    allowed = max(ALWAYS_ALLOWED, RATIO * archive.stat().st_size) if limit is None else limit
    extraction = _Extraction(archive, folder, allowed)
    try:
        if zipfile.is_zipfile(archive):
            extraction.extract_zip()
        else:
            extraction.extract_tar()
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{archive} is cut short or corrupt: {error}; fetch it again") from None
    return folder


class _Extraction:
    """One archive on its way into one folder."""

    def __init__(self, archive: Path, folder: Path, limit: int) -> None:
        self.archive, self.folder, self.limit = archive, folder, limit
        self.home = folder.resolve()
        self.size = 0  # bytes that the checked entries would write

    def extract_zip(self) -> None:
        with zipfile.ZipFile(self.archive) as file:
            for member in file.infolist():
                self._check_zip_member(member)
            self.folder.mkdir(parents=True, exist_ok=True)
            file.extractall(self.folder)

    def extract_tar(self) -> None:
        with _decompress(self.archive) as stream, _open_tar(self.archive, stream) as file:
            self._check_tar(file)
            self.folder.mkdir(parents=True, exist_ok=True)
            for member in file:
                if not (member.issym() or member.islnk()):
                    file.extract(member, self.folder, set_attrs=False, filter="data")
            # links come last, as copies: no file can be written through one, and none is left to follow
            for member in file:
                if member.issym() or member.islnk():
                    self._copy_link(member)

    def _check_zip_member(self, member: zipfile.ZipInfo) -> None:
        self._check_name(member.filename)
        self._add_size(member.file_size)  # zipfile reads no more than this
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise self._refuse(f"its entry {member.filename!r} is a link or a device")
        if member.flag_bits & 1:
            raise ValueError(f"{self.archive} is encrypted; extract it with its password and another tool")

    def _check_tar(self, file: tarfile.TarFile) -> None:
        if not hasattr(tarfile, "data_filter"):
            raise ImportError("safe extraction of tar files needs Python 3.11.4 or newer")
        sizes: dict[str, int] = {}
        links: list[tuple[str, str]] = []
        for member in file:
            self._check_name(member.name)
            self._check_tar_member(member)
            self._add_size(member.size)
            sizes[posixpath.normpath(member.name)] = member.size
            if member.issym() or member.islnk():
                links.append((member.name, _find_target(member)))
        for name, target in links:
            size = sizes.get(posixpath.normpath(target), 0)
            self._add_size(size)
            sizes[posixpath.normpath(name)] = size

    def _check_tar_member(self, member: tarfile.TarInfo) -> None:
        link = member.linkname.replace("\\", "/")
        try:
            if PureWindowsPath(link).anchor:
                raise tarfile.AbsoluteLinkError(member)
            tarfile.data_filter(member.replace(linkname=link, deep=False), str(self.home))
        except tarfile.SpecialFileError:
            raise self._refuse(f"its entry {member.name!r} is a device or a pipe") from None
        except (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError):
            raise self._refuse(f"its link {member.name!r} leads out of the folder, to {member.linkname!r}") from None
        except tarfile.FilterError as error:
            raise self._refuse(str(error)) from None

    def _check_name(self, name: str) -> None:
        windows = PureWindowsPath(name)
        if PurePosixPath(name).is_absolute() or windows.anchor or ".." in windows.parts:
            raise self._refuse(f"its entry {name!r} leads out of the folder")
        if not (self.home / name).resolve().is_relative_to(self.home):
            raise self._refuse(f"{self.folder / name} leads out of {self.home} by a link that is there already")

    def _add_size(self, size: int) -> None:
        """Count one entry; empty entries take space in the file system, too."""
        self.size += size + ENTRY
        if self.size > self.limit:
            raise self._refuse(
                f"its {self.archive.stat().st_size:,} bytes unpack to more than {self.limit:,}. "
                "If you trust it, allow more with unpack(..., limit=BYTES)"
            )

    def _copy_link(self, member: tarfile.TarInfo) -> None:
        path, target = self.folder / member.name, self.folder / _find_target(member)
        source = target.resolve()
        if not source.is_relative_to(self.home) or not source.is_file():
            raise self._refuse(f"the link {path} names {target}, which is no file of the archive")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)

    def _refuse(self, reason: str) -> ValueError:
        return ValueError(f"{self.archive} is refused: {reason}")


class _LimitedStream(io.RawIOBase):
    """A decompressed tar file that does not read a huge header into memory.

    tarfile reads the content of entries in small pieces; it reads only headers with long names at once.
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
def _decompress(archive: Path) -> Iterator[_LimitedStream]:
    with archive.open("rb") as file:
        first = file.read(6)
    openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    opener = next((opener for magic, opener in openers.items() if first.startswith(magic)), open)
    with opener(archive, "rb") as inner:
        yield _LimitedStream(archive, inner)


def _open_tar(archive: Path, stream: _LimitedStream) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=stream, mode="r:")
    except (tarfile.ReadError, OSError, lzma.LZMAError):  # at its first entry
        raise ValueError(f"{archive} is neither a tar nor a zip file") from None


def read_tar_members(path: Path, file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of an uncompressed tar file; positions of their contents are those in the file.

    Args:
        path: Path of the file, for error messages.
        file: The file, opened for reading.

    Raises:
        ValueError: The file is compressed, is no tar file, has a huge header, or is cut short.
    """
    if file.read(6).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"PK")):
        raise ValueError(f"{path} is compressed, so that its images cannot be read one at a time: decompress it first")
    file.seek(0)
    stream = _LimitedStream(path, file)
    try:
        with _open_tar(path, stream) as archive:
            yield from archive
    except tarfile.TarError as error:
        raise ValueError(f"{path} is cut short or corrupt: {error}; fetch it again") from None


def _find_target(member: tarfile.TarInfo) -> str:
    """Path that a link names, relative to the root of the archive."""
    return str(PurePosixPath(member.name).parent / member.linkname) if member.issym() else member.linkname
