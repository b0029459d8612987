"""What an open gallery shows: its items, exact search, and the threshold of identification."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold.embedding.encoders import EmbeddingRun, fingerprint_run
from kinfold.gallery import kept_index
from kinfold.gallery.chunks import GalleryChunk
from kinfold.gallery.exact_search import search_chunks
from kinfold.gallery.folder import GalleryFolder
from kinfold.gallery.inputs import check_distance
from kinfold.gallery.item_table import ItemTable
from kinfold.gallery.matches import Match, Matches
from kinfold.gallery.open_set import OpenSetThreshold, compute_threshold
from kinfold.metrics._ranking.rows import check_rows, normalize_rows
from kinfold.metrics.inputs import to_rows


class GalleryReader:
    """The reading half of `Gallery`.

    Args:
        folder: The folder of an existing gallery.

    Raises:
        ValueError: There is no gallery, or a file is missing or damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self._files = GalleryFolder(folder)
        self._manifest: dict[str, Any] = {}
        self._chunks: list[GalleryChunk] = []
        self._threshold: OpenSetThreshold | None = None
        self._index: kept_index.KeptIndex | None = None
        self.refresh()

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
            "index": self._describe_index(),
            "threshold": None if self._manifest["open_set"] is None else self.open_set_threshold().to_dict(),
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
        if self._manifest["open_set"] is not None:
            probes = self._files.open_chunk(self._manifest["open_set"], self.dim)
            probes.read_vectors()
            probes.read_items()
        if self._manifest["index"] is not None:
            self._files.open_file(self._manifest["index"]).read()

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        run: EmbeddingRun | None = None,
        fingerprint: str | None = None,
        approximate: bool = False,
    ) -> Matches:
        """Find the nearest items of each query by the exact cosine.

        Args:
            queries: (Q, dim), or (dim,) for one query. With `run`: whatever `Run.embed` takes.
            k: The number of items for each query.
            run: The run that embeds.
            fingerprint: The fingerprint of the model that made the embeddings, where there is no run.
            approximate: Take candidates from the index that `build_index` keeps: faster in large galleries, but a near
                item may be missed. The similarities and the order of what is returned are exact all the same.

        Raises:
            ValueError: The queries are of another model or of another length, or the gallery is empty or damaged, or
                it has no index for an approximate search.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not len(self):
            raise ValueError(f"{self.folder} is empty: add items first")
        vectors = self._prepare(queries, run, fingerprint)
        if not approximate:
            return self.describe(*search_chunks(vectors, self.chunks, k))
        if self._index is None:
            self._index = kept_index.read(self._files, self._manifest)
        return self.describe(*self._index.search(vectors, self.chunks, self.items.keys, k))

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

    def open_set_threshold(self) -> OpenSetThreshold:
        """Return the threshold of `identify` for the gallery as it is.

        Raises:
            ValueError: The gallery has no probes, or all of their classes are in the gallery.
        """
        entry = self._manifest["open_set"]
        if entry is None:
            raise ValueError(
                f"{self.folder} has no threshold yet: run `kinfold calibrate RUN --gallery {self.folder}`, or "
                "Gallery.calibrate(run)"
            )
        if self._threshold is None:
            chunk = self._files.open_chunk(entry, self.dim)
            names = np.array(chunk.read_items().labels.to_pylist())
            unknown = np.flatnonzero(~np.isin(names, self.classes))
            if not len(unknown):
                raise ValueError(f"all probe classes are in {self.folder}: calibrate with other classes")
            probes = chunk.read_vectors()[torch.from_numpy(unknown)]
            numbers = torch.from_numpy(np.unique(names[unknown], return_inverse=True)[1].astype(np.int64))
            nearest = torch.tensor(entry["nearest"], dtype=torch.float64)[torch.from_numpy(unknown)]
            size = (len(self.classes), len(self))
            self._threshold = compute_threshold(probes, numbers, nearest, entry["far"], size, entry["may_guarantee"])
        return self._threshold

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
        if manifest["index"] is None or manifest["index"] != self._manifest.get("index"):
            self._index = None
        self._manifest = manifest
        self._threshold = None

    def _describe_index(self) -> dict[str, Any] | None:
        entry = self._manifest["index"]
        if entry is None:
            return None
        live = entry["count"] - entry["dead"]
        return {"library": entry["library"], "items": live, "waiting": len(self) - live, "removed": entry["dead"]}
