"""`Gallery`: embeddings with labels, ids and paths in a folder, to search and to extend."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from kinfold.data.items import Array
from kinfold.embedding.encoders import EmbeddingRun, fingerprint_run
from kinfold.gallery.chunk_list import append_items, drop_items
from kinfold.gallery.chunks import Chunk
from kinfold.gallery.exact_search import search_chunks
from kinfold.gallery.folder import GalleryFolder
from kinfold.gallery.inputs import check_distance, check_unique, get_dim, to_strings
from kinfold.gallery.item_table import ItemTable
from kinfold.gallery.matches import Match, Matches
from kinfold.metrics._ranking.rows import check_rows, normalize_rows
from kinfold.metrics.inputs import to_rows

Existing = Literal["raise", "skip", "replace"]
Progress = Callable[[str, float], None]


class Gallery:
    """Unit embeddings with labels, ids and paths, in a folder on disk.

    Embeddings are kept as safetensors files, and labels, ids and paths as Parquet files, in chunks. Files are mapped
    into memory when the gallery is opened, and their sha256 is checked when they are first used. Every change is
    complete or not made at all, and one process at a time writes. An open gallery shows what was there when it was
    opened; `refresh` shows what others have written since.

    The gallery holds the fingerprint of the model and transform that made its embeddings. A run with another
    fingerprint is refused.

    `Gallery.create` makes one, `Gallery.open` opens one.

    Args:
        folder: The folder of an existing gallery.

    Raises:
        ValueError: There is no gallery, or a file is missing or damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self._files = GalleryFolder(folder)
        self._manifest: dict[str, Any] = {}
        self._chunks: list[Chunk] = []
        self.refresh()

    @staticmethod
    def create(
        folder: Path | str,
        dim: int | None = None,
        *,
        run: EmbeddingRun | None = None,
        fingerprint: str | None = None,
    ) -> "Gallery":
        """Make an empty gallery.

        Args:
            folder: A folder that is missing or empty.
            dim: The length of an embedding; that of the run where one is given.
            run: The run that embeds.
            fingerprint: What stands for the model that embeds, where there is no run: any string. None accepts
                embeddings of every model, and nothing is checked.

        Raises:
            ValueError: The folder is not empty, or the run does not compare by cosine.
        """
        model: dict[str, Any] = {}
        if run is not None:
            if dim is not None or fingerprint is not None:
                raise ValueError("dim and fingerprint are those of the run: leave them out")
            check_distance(run)
            fingerprint, dim = fingerprint_run(run), get_dim(run)
            model = {"run": run.folder.resolve().name}
        if dim is None:
            raise ValueError("give the length of an embedding, dim=, or the run that embeds, run=")
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        GalleryFolder(folder).create(dim, fingerprint, model)
        return Gallery(folder)

    @staticmethod
    def open(folder: Path | str) -> "Gallery":
        """Open a gallery; the same as `Gallery(folder)`."""
        return Gallery(folder)

    def refresh(self) -> None:
        """Show what is on disk now."""
        self._show(self._files.read())

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._files.path

    @property
    def dim(self) -> int:
        """The length of an embedding."""
        dim: int = self._manifest["dim"]
        return dim

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the model and transform that made the embeddings; None where it is not known."""
        fingerprint: str | None = self._manifest["fingerprint"]
        return fingerprint

    @property
    def items(self) -> ItemTable:
        """Keys, ids, labels and paths of all items, as Arrow arrays."""
        return ItemTable.concatenate([chunk.read_items() for chunk in self._chunks])

    @property
    def labels(self) -> list[str]:
        """The label of each item."""
        labels: list[str] = self.items.labels.to_pylist()
        return labels

    @property
    def ids(self) -> list[str]:
        """The id of each item."""
        ids: list[str] = self.items.ids.to_pylist()
        return ids

    @property
    def classes(self) -> list[str]:
        """The different labels, sorted, without the empty one."""
        return sorted({*self.items.labels.unique().to_pylist()} - {""})

    @property
    def chunks(self) -> list[Tensor]:
        """The unit embeddings in pieces, float32 (N_i, dim), in mapped memory; they must not be changed."""
        return [chunk.read_vectors() for chunk in self._chunks]

    def embeddings(self) -> Tensor:
        """Return a copy of all unit embeddings, float32 (N, dim)."""
        return torch.cat(self.chunks) if self._chunks else torch.empty(0, self.dim)

    def __len__(self) -> int:
        return sum(chunk.count for chunk in self._chunks)

    def __repr__(self) -> str:
        return f"<Gallery {str(self.folder)!r}: {len(self):,} items of {self.dim} numbers>"

    def info(self, verify: bool = False) -> dict[str, Any]:
        """Return counts, the model, and the size on disk.

        Args:
            verify: Check the sha256 of every file first.

        Raises:
            ValueError: A file is damaged.
        """
        if verify:
            self.verify()
        sizes = [path.stat().st_size for path in self.folder.iterdir() if path.is_file()]
        labels = self.items.labels.unique().to_pylist()
        return {
            "folder": str(self.folder),
            "items": len(self),
            "classes": len({*labels} - {""}),
            "dim": self.dim,
            "chunks": len(self._chunks),
            "bytes": sum(sizes),
            "model": self._manifest["model"],
            "fingerprint": self.fingerprint,
            "verified": verify,
        }

    def verify(self) -> None:
        """Check the sha256 and the contents of every file now.

        Raises:
            ValueError: A file is damaged; the message names it.
        """
        for chunk in self._chunks:
            chunk.read_vectors()
            chunk.read_items()

    def add(
        self,
        embeddings: Any,
        labels: Sequence[Any] | Array | Tensor,
        ids: Sequence[str] | None = None,
        paths: Sequence[str | Path] | None = None,
        *,
        run: EmbeddingRun | None = None,
        fingerprint: str | None = None,
        existing: Existing = "raise",
    ) -> int:
        """Add items: all of them, or none where something is wrong or the process is killed.

        Args:
            embeddings: (N, dim). With `run`: whatever `Run.embed` takes, such as paths of images.
            labels: The class of each item; an empty string for an item without one.
            ids: A string for each item that no other item of the gallery has. Left out: the paths where there are
                some, else numbers.
            paths: The file of each item.
            run: The run that embeds.
            fingerprint: The fingerprint of the model that made the embeddings, where there is no run.
            existing: What to do with an id that the gallery has already: "raise" an error, "skip" the new item, or
                "replace" the old one.

        Returns:
            The number of items that were added or replaced.

        Raises:
            ValueError: The embeddings are of another model, or of another length, or an id is there twice.
            FolderLockedError: Another process writes to the gallery.
        """
        if existing not in ("raise", "skip", "replace"):
            raise ValueError(f"existing must be 'raise', 'skip' or 'replace', got {existing!r}")
        rows = self._prepare(embeddings, run, fingerprint)
        names = to_strings(labels, len(rows), "labels")
        files = [""] * len(rows) if paths is None else to_strings(paths, len(rows), "paths")
        given = files if ids is None and paths is not None else ids
        with self._files.edit() as manifest:
            self._show(manifest)
            first_key = manifest["next_key"]
            keys = np.arange(first_key, first_key + len(rows), dtype=np.int64)
            unique = [str(key) for key in keys.tolist()] if given is None else to_strings(given, len(rows), "ids")
            check_unique(unique)
            table = ItemTable.from_lists(keys, unique, names, files)
            known = table.find("ids", self._find_known(unique))
            if known.any():
                if existing == "raise":
                    raise ValueError(
                        f"{int(known.sum()):,} of these ids are in {self.folder} already, such as "
                        f"{unique[int(known.argmax())]!r}: use other ids, or existing='skip' or 'replace'"
                    )
                if existing == "skip":
                    kept = np.flatnonzero(~known)
                    table, rows = table.take(kept), rows[torch.from_numpy(kept)]
                else:
                    drop_items(self._files, manifest, "ids", unique)
            manifest["next_key"] = first_key + len(names)
            append_items(self._files, manifest, rows, table)
        self.refresh()
        return len(table)

    def remove(self, ids: Sequence[str] | None = None, labels: Sequence[str] | None = None) -> int:
        """Remove items by their ids, or all items of some classes. The chunks that hold them are written again.

        Args:
            ids: Ids of items.
            labels: Classes.

        Returns:
            The number of items that were removed.

        Raises:
            ValueError: Neither or both are given, or an id or label is not in the gallery; then nothing is removed.
            FolderLockedError: Another process writes to the gallery.
        """
        if (ids is None) == (labels is None):
            raise ValueError("give the ids or the labels of what to remove")
        column, values = ("ids", ids) if ids is not None else ("labels", labels)
        wanted = [*map(str, values or ())]
        with self._files.edit() as manifest:
            self._show(manifest)
            present = {*getattr(self.items, column).take(np.flatnonzero(self.items.find(column, wanted))).to_pylist()}
            missing = [value for value in wanted if value not in present]
            if missing:
                raise ValueError(f"{self.folder} has no item with the {column[:-1]} {missing[0]!r}")
            removed = drop_items(self._files, manifest, column, wanted)
        self.refresh()
        return removed

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        run: EmbeddingRun | None = None,
        fingerprint: str | None = None,
    ) -> Matches:
        """Find the nearest items of each query by the exact cosine.

        Args:
            queries: (Q, dim), or (dim,) for one query. With `run`: whatever `Run.embed` takes.
            k: The number of items for each query.
            run: The run that embeds.
            fingerprint: The fingerprint of the model that made the embeddings, where there is no run.

        Raises:
            ValueError: The queries are of another model or of another length, or the gallery is empty or damaged.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not len(self):
            raise ValueError(f"{self.folder} is empty: add items first")
        similarities, rows = search_chunks(self._prepare(queries, run, fingerprint), self.chunks, k)
        return self.describe(similarities, rows)

    def describe(self, similarities: Tensor, rows: Tensor) -> Matches:
        """Return positions in the gallery (Q, k) with what is known of the items."""
        starts = np.cumsum([0, *(chunk.count for chunk in self._chunks)])
        flat = rows.reshape(-1).numpy()
        chunk_of = np.searchsorted(starts, flat, side="right") - 1
        facts: dict[int, tuple[str, str, str]] = {}
        for number in np.unique(chunk_of[flat >= 0]).tolist():
            positions = np.unique(flat[(chunk_of == number) & (flat >= 0)])
            part = self._chunks[number].read_items().take(positions - starts[number])
            columns = (part.ids.to_pylist(), part.labels.to_pylist(), part.paths.to_pylist())
            facts.update(zip(positions.tolist(), zip(*columns, strict=True), strict=True))
        items = [
            [Match(*facts[row], value, row) for value, row in zip(values, positions, strict=True) if row >= 0]
            for values, positions in zip(similarities.tolist(), rows.tolist(), strict=True)
        ]
        return Matches(similarities, rows, items)

    def _prepare(self, embeddings: Any, run: EmbeddingRun | None, fingerprint: str | None) -> Tensor:
        """Return unit vectors, float32 (N, dim), of what was checked."""
        if run is not None:
            if fingerprint is not None:
                raise ValueError("the fingerprint is that of the run: leave it out")
            check_distance(run)
            fingerprint = fingerprint_run(run)
        self.check_fingerprint(fingerprint)
        rows = to_rows(embeddings if run is None else run.embed(embeddings))
        rows = (rows[None] if rows.dim() == 1 else rows).float().cpu()
        check_rows(rows, "embeddings")
        if rows.shape[1] != self.dim:
            raise ValueError(f"the embeddings have {rows.shape[1]} numbers, and those of {self.folder} {self.dim}")
        return normalize_rows(rows)

    def check_fingerprint(self, fingerprint: str | None) -> None:
        """Refuse embeddings of another model.

        Args:
            fingerprint: That of the model; None where it is not known, which is accepted.

        Raises:
            ValueError: The gallery was made with another model or transform.
        """
        if fingerprint is not None and self.fingerprint is not None and fingerprint != self.fingerprint:
            name = self._manifest["model"].get("run")
            made = f"by the run {name!r}" if name else "by another model"
            raise ValueError(
                f"the embeddings of {self.folder} were made {made} (fingerprint {self.fingerprint[:12]}), and these by "
                f"a model or transform with the fingerprint {fingerprint[:12]}: embeddings of two models cannot be "
                "compared. Use the run that made the gallery, or build the gallery again with this one"
            )

    def _show(self, manifest: dict[str, Any]) -> None:
        """Map the listed chunks; those that are mapped already stay, with what is known of them."""
        mapped = {chunk.vectors.path.name: chunk for chunk in self._chunks}
        dim = manifest["dim"]
        self._chunks = [
            mapped.get(entry["vectors"]["file"]) or self._files.open_chunk(entry, dim) for entry in manifest["chunks"]
        ]
        self._manifest = manifest

    def _find_known(self, ids: list[str]) -> list[str]:
        """Return those ids that the gallery has."""
        known: list[str] = []
        for chunk in self._chunks:
            table = chunk.read_items()
            known += table.ids.take(np.flatnonzero(table.find("ids", ids))).to_pylist()
        return known
