"""Unpack a downloaded archive so that nothing lands, or leads, outside the chosen folder."""

import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

Entry = tuple[str, IO[bytes] | None, str | None]  # name, content (None: a folder), target of a link


def unpack(archive: Path | str, folder: Path | str) -> Path:
    """Unpack a .tar, .tar.gz (.tgz), .tar.bz2, .tar.xz or .zip file into `folder` and return the folder.

    Refused, before anything is written: absolute paths, paths with '..', links that lead out of the folder, devices
    and pipes. Permissions and owners of the archive are not applied.
    """
    archive, folder = Path(archive), Path(folder)
    if not archive.is_file():
        raise ValueError(f"there is no file {archive}")
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                _check_zip(archive, opened)
                _write(archive, folder, _zip_entries(opened))
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tape:
                _check_tar(archive, tape)
                _write(archive, folder, _tar_entries(tape))
        else:
            raise ValueError(f"{archive} is neither a tar nor a zip file")
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as broken:
        raise ValueError(f"{archive} is cut short or corrupt: {broken}; fetch it again") from None
    return folder


def _check_name(archive: Path, name: str) -> None:
    windows = PureWindowsPath(name)
    if PurePosixPath(name).is_absolute() or windows.anchor or ".." in windows.parts:
        raise ValueError(f"{archive} is refused: its entry {name!r} leads out of the folder")


def _check_tar(archive: Path, tape: tarfile.TarFile) -> None:
    for member in tape:
        _check_name(archive, member.name)
        if member.issym():
            _check_link(archive, member.name, str(PurePosixPath(member.name).parent / member.linkname))
        elif member.islnk():
            _check_link(archive, member.name, member.linkname)
        elif not (member.isfile() or member.isdir()):
            raise ValueError(f"{archive} is refused: its entry {member.name!r} is a device or a pipe")


def _check_link(archive: Path, name: str, target: str) -> None:
    depth = 0
    for part in PureWindowsPath(target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            break
    if depth < 0 or PureWindowsPath(target).anchor:
        raise ValueError(f"{archive} is refused: its link {name!r} leads out of the folder, to {target!r}")


def _check_zip(archive: Path, opened: zipfile.ZipFile) -> None:
    for member in opened.infolist():
        _check_name(archive, member.filename)
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"{archive} is refused: its entry {member.filename!r} is a link or a device")
        if member.flag_bits & 1:
            raise ValueError(f"{archive} is encrypted; unpack it with its password by a tool of your own")


def _tar_entries(tape: tarfile.TarFile) -> Iterator[Entry]:
    for member in tape:
        if member.isdir():
            yield member.name, None, None
        elif member.issym():
            yield member.name, None, str(PurePosixPath(member.name).parent / member.linkname)
        elif member.islnk():
            yield member.name, None, member.linkname
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
