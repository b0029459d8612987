"""The folder of a gallery: gallery.json lists all other files with their sha256.

A writer holds the lock, writes new files under new names, replaces gallery.json, and then deletes what it no longer
lists. So a process that is killed leaves either the gallery as it was or the new one, and files that nobody lists,
which the next writer deletes.
"""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from kinfold.files.atomic import remove_unfinished, write_atomic
from kinfold.files.checksums import SHA256, compute_sha256
from kinfold.files.documents import IntegerRange, read_result, write_result
from kinfold.files.locks import lock_folder
from kinfold.files.paths import remove_file
from kinfold.gallery.chunks import GalleryChunk, MappedFile, pack_vectors
from kinfold.gallery.item_table import ItemTable

FORMAT = 1
MANIFEST = "gallery.json"
_FILE = re.compile(r"(vectors|items|probes|index)-[0-9]{9}\.(safetensors|parquet|faiss|usearch)")
_ENTRY = {"file": _FILE, "sha256": SHA256}
_SHAPE = {
    "format": IntegerRange(FORMAT, FORMAT),
    "dim": IntegerRange(1, 1 << 20),
    "fingerprint": (str, None),
    "model": {str: object},
    "next_key": IntegerRange(0, 1 << 62),
    "next_file": IntegerRange(0, 10**9 - 1),
    "chunks": [{"count": IntegerRange(1, 1 << 40), "vectors": _ENTRY, "items": _ENTRY}],
    "open_set": (
        {
            "far": float,
            "origin": str,
            "may_guarantee": bool,
            "count": IntegerRange(1, 1 << 40),
            "vectors": _ENTRY,
            "items": _ENTRY,
            "nearest": [float],
        },
        None,
    ),
    "index": (
        {
            "file": _FILE,
            "sha256": SHA256,
            "library": re.compile("faiss|usearch"),
            "next_key": IntegerRange(0, 1 << 62),
            "count": IntegerRange(0, 1 << 40),
            "dead": IntegerRange(0, 1 << 40),
        },
        None,
    ),
}


class GalleryFolder:
    """Reads and writes the files of a gallery.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        """Whether a gallery is there."""
        return (self.path / MANIFEST).is_file()

    def create(self, dim: int, fingerprint: str | None, model: dict[str, Any]) -> None:
        """Make the folder of an empty gallery.

        Raises:
            ValueError: The folder is not empty.
            OSError: It cannot be written to.
        """
        self._check_empty()
        self.path.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self._check_empty()
            manifest = {"format": FORMAT, "dim": dim, "fingerprint": fingerprint, "model": model}
            empty = {"next_key": 0, "next_file": 0, "chunks": [], "open_set": None, "index": None}
            write_result(self.path / MANIFEST, {**manifest, **empty}, self.path)

    def read(self) -> dict[str, Any]:
        """Return what gallery.json says, checked.

        Raises:
            ValueError: There is no gallery, or its list is damaged.
        """
        if not self.exists:
            raise ValueError(f"{self.path} is not a gallery: it has no {MANIFEST}; `kinfold gallery build` makes one")
        return read_result(self.path / MANIFEST, _SHAPE, self.path)

    @contextmanager
    def edit(self) -> Iterator[dict[str, Any]]:
        """Yield what gallery.json says, to be changed; what it says at the end becomes the gallery, at once.

        Raises:
            FolderLockedError: Another process writes to the gallery.
        """
        with self._lock():
            before = self.read()
            self._delete_unlisted(before)
            after = copy.deepcopy(before)
            yield after
            if after != before:
                write_result(self.path / MANIFEST, after, self.path)
                self._delete_unlisted(after)

    def write_chunk(self, manifest: dict[str, Any], vectors: Tensor, table: ItemTable) -> dict[str, Any]:
        """Write the two files of a chunk, and return its entry in the list."""
        packed, parquet = pack_vectors(vectors), table.to_parquet()
        return {
            "count": len(table),
            "vectors": self.write_file(manifest, "vectors", "safetensors", packed),
            "items": self.write_file(manifest, "items", "parquet", parquet),
        }

    def write_file(self, manifest: dict[str, Any], kind: str, extension: str, content: bytes) -> dict[str, str]:
        """Write a file under a new name, and return its name and checksum."""
        name = f"{kind}-{manifest['next_file']:09}.{extension}"
        manifest["next_file"] += 1
        write_atomic(self.path / name, lambda file: file.write(content), self.path)
        return {"file": name, "sha256": compute_sha256(content)}

    def open_chunk(self, entry: dict[str, Any], dim: int) -> GalleryChunk:
        """Map the files of a chunk into memory."""
        return GalleryChunk(entry["count"], dim, self.open_file(entry["vectors"]), self.open_file(entry["items"]))

    def open_file(self, entry: dict[str, Any]) -> MappedFile:
        """Map a listed file into memory."""
        return MappedFile(self.path / entry["file"], entry["sha256"], self.path)

    def _lock(self) -> Any:
        occupied = f"another process is writing to the gallery {self.path}; wait for it"
        return lock_folder(self.path, occupied, "check its permissions")

    def _delete_unlisted(self, manifest: dict[str, Any]) -> None:
        """Delete files that an interrupted or earlier writer left; files of other names stay."""
        chunks = [*manifest["chunks"], *([manifest["open_set"]] if manifest["open_set"] else [])]
        listed = {entry[part]["file"] for entry in chunks for part in ("vectors", "items")}
        listed |= {manifest["index"]["file"]} if manifest["index"] else set()
        remove_unfinished(self.path, re.compile(rf"{re.escape(MANIFEST)}|{_FILE.pattern}"), self.path)
        for path in [*self.path.iterdir()]:
            if _FILE.fullmatch(path.name) and path.name not in listed:
                remove_file(path, self.path)

    def _check_empty(self) -> None:
        if not self.path.exists():
            return
        if self.path.is_file():
            raise ValueError(f"{self.path} is a file: name a folder")
        leftovers = {self.path / ".lock", *self.path.glob(f".{MANIFEST}.*.tmp")}
        if set(self.path.iterdir()) - leftovers:
            advice = "add to it with `kinfold gallery add`, or " if self.exists else ""
            raise ValueError(f"{self.path} is not empty: {advice}choose another folder")


def remove_empty_gallery(folder: Path) -> None:
    """Delete the files of a gallery that nothing was added to, and its folder if that is empty then."""
    for name in (MANIFEST, ".lock"):
        remove_file(folder / name, folder)
    with suppress(OSError):  # other files are in it
        folder.rmdir()
