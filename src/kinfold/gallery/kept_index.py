"""A graph index (HNSW) of faiss or usearch that is kept in the folder of a gallery, for approximate search.

The index holds vectors under the keys of their items, which are never used again. `gallery.json` lists its file with
the sha256, the first key that it does not hold, and how many of its items were removed. A search takes candidates from
the index, searches exactly what was added since, leaves removed items out, and orders all by the exact cosine.

A file of an index is written as a whole, so that it is not written with every change: items that were added wait until
they are a tenth of the index, and removed ones stay in its file until they are a tenth of it. Then it is built again,
because faiss cannot delete from a graph, and usearch only marks.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from kinfold.data.items import Array
from kinfold.gallery.exact_search import score_rows, search_chunks
from kinfold.gallery.folder import GalleryFolder
from kinfold.metrics._ranking.nearest import take_first
from kinfold.optional import import_optional
from kinfold.registry import check_choice

Library = Literal["faiss", "usearch"]
LIBRARIES: tuple[Library, ...] = ("faiss", "usearch")
MIN_CHANGES = 4096  # added or removed items that an index tolerates, whatever its size
MAX_SHARE = 0.1  # of an index
_LINKS = 32
_BUILD_NODES = 128  # nodes that are held while adding
_SEARCH_NODES = 128  # nodes that are held while searching, at least
_CANDIDATES = 4  # for each neighbor that is asked for


class GraphIndex(Protocol):
    """What is needed of an index of any library."""

    def add(self, keys: Array, vectors: Tensor) -> None:
        """Add unit vectors (N, dim) under int64 keys (N,)."""

    def search(self, queries: Tensor, k: int) -> Array:
        """Return keys near each query, int64 (Q, k), -1 where there are fewer."""

    def to_bytes(self) -> bytes:
        """Return the contents of a file."""


class FaissIndex:
    """An HNSW index of faiss.

    Args:
        dim: The length of a vector.
        content: The contents of a file; None makes an empty index.
    """

    def __init__(self, dim: int, content: Any = None) -> None:
        self._faiss = import_optional("faiss", "faiss", "faiss", "the index of the gallery")
        if content is None:
            graph = self._faiss.IndexHNSWFlat(dim, _LINKS, self._faiss.METRIC_INNER_PRODUCT)
            graph.hnsw.efConstruction = _BUILD_NODES
            self._index = self._faiss.IndexIDMap2(graph)
        else:
            self._index = self._faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8))

    def add(self, keys: Array, vectors: Tensor) -> None:
        """Add unit vectors (N, dim) under int64 keys (N,)."""
        self._index.add_with_ids(np.ascontiguousarray(vectors.numpy()), keys)

    def search(self, queries: Tensor, k: int) -> Array:
        """Return keys near each query, int64 (Q, k), -1 where there are fewer."""
        graph = self._faiss.downcast_index(self._index.index)
        graph.hnsw.efSearch = max(_SEARCH_NODES, 2 * k)
        keys: Array = self._index.search(np.ascontiguousarray(queries.numpy()), k)[1]
        return keys

    def to_bytes(self) -> bytes:
        """Return the contents of a file."""
        content: bytes = self._faiss.serialize_index(self._index).tobytes()
        return content


class UsearchIndex:
    """An HNSW index of usearch.

    Args:
        dim: The length of a vector.
        content: The contents of a file; None makes an empty index.
    """

    def __init__(self, dim: int, content: Any = None) -> None:
        module = import_optional("usearch.index", "usearch", "usearch", "the index of the gallery")
        self._index = module.Index(ndim=dim, metric="ip", dtype="f32", connectivity=_LINKS, expansion_add=_BUILD_NODES)
        if content is not None:
            self._index.load(bytes(content))

    def add(self, keys: Array, vectors: Tensor) -> None:
        """Add unit vectors (N, dim) under int64 keys (N,)."""
        self._index.add(keys.astype(np.uint64), np.ascontiguousarray(vectors.numpy()))

    def search(self, queries: Tensor, k: int) -> Array:
        """Return keys near each query, int64 (Q, k), -1 where there are fewer."""
        self._index.expansion_search = max(_SEARCH_NODES, 2 * k)
        matches = self._index.search(np.ascontiguousarray(queries.numpy()), k)
        keys = np.asarray(matches.keys).astype(np.int64).reshape(len(queries), -1)
        counts = np.atleast_1d(np.asarray(getattr(matches, "counts", len(matches))))
        return np.where(np.arange(keys.shape[1]) < counts[:, None], keys, -1)

    def to_bytes(self) -> bytes:
        """Return the contents of a file."""
        return bytes(self._index.save())


def create_index(library: str, dim: int, content: Any = None) -> GraphIndex:
    """Make or read an index.

    Args:
        library: "faiss" or "usearch".
        dim: The length of a vector.
        content: The contents of a file; None makes an empty index.

    Raises:
        ValueError: The library is unknown.
        ImportError: It is not installed.
    """
    kinds: dict[str, type[FaissIndex] | type[UsearchIndex]] = {"faiss": FaissIndex, "usearch": UsearchIndex}
    check_choice("library", library, LIBRARIES)
    return kinds[library](dim, content)


@dataclass
class KeptIndex:
    """An index with what `gallery.json` says of it.

    Args:
        graph: The index.
        count: The number of items that it holds, removed ones included.
        next_key: Items with this key or a larger one are not in it.
    """

    graph: GraphIndex
    count: int
    next_key: int

    def search(self, queries: Tensor, chunks: Sequence[Tensor], keys: Array, k: int) -> tuple[Tensor, Tensor]:
        """Find near rows: candidates of the index and the nearest of newer items, ordered by their exact cosines.

        Args:
            queries: Unit vectors, float32 (Q, d).
            chunks: The unit vectors of the gallery.
            keys: The keys of its items, ascending, (N,).
            k: The number of neighbors; fewer where there are fewer rows.

        Returns:
            Cosines (Q, k) float64 and rows (Q, k). A query whose candidates were removed for the most part is searched
            exactly, so that no place stays empty.
        """
        k = min(k, len(keys))
        indexed = int(np.searchsorted(keys, self.next_key))
        candidates = self.graph.search(queries, min(self.count, _CANDIDATES * k)) if self.count else None
        query, row = _find_rows(candidates, keys[:indexed])
        if indexed < len(keys):
            newer = search_chunks(queries, _skip_rows(chunks, indexed), k)[1] + indexed
            query = torch.cat([query, torch.arange(len(queries)).repeat_interleave(newer.shape[1])])
            row = torch.cat([row, newer.flatten()])
        scores, rows = take_first(query, row, score_rows(queries, chunks, query, row), len(queries), k)
        short = (rows < 0).any(dim=1).nonzero().squeeze(1)
        if len(short):
            scores[short], rows[short] = search_chunks(queries[short], chunks, k)
        return scores, rows


def build(files: GalleryFolder, manifest: dict[str, Any], library: str) -> None:
    """Build the index of all items that are listed, and list it."""
    graph, count = create_index(library, manifest["dim"]), 0
    for entry in manifest["chunks"]:
        chunk = files.open_chunk(entry, manifest["dim"])
        graph.add(chunk.read_items().keys, chunk.read_vectors())
        count += chunk.count
    _list(files, manifest, library, graph, count)


def follow(files: GalleryFolder, manifest: dict[str, Any]) -> None:
    """Bring the index up to date with a change of the items, where the change is large enough.

    Where the library is not installed, the index stays as it is: newer items are searched exactly.
    """
    entry = manifest["index"]
    if entry is None:
        return
    keys = read_keys(files, manifest)
    indexed = int(np.searchsorted(keys, entry["next_key"]))
    entry["dead"] = entry["count"] - indexed
    most = max(MIN_CHANGES, MAX_SHARE * entry["count"])
    if importlib.util.find_spec(entry["library"]) is None:
        return
    if entry["dead"] > most:
        build(files, manifest, entry["library"])
    elif len(keys) - indexed > most:
        kept = read(files, manifest)
        vectors = torch.cat(_skip_rows(_read_chunks(files, manifest), indexed))
        kept.graph.add(keys[indexed:], vectors)
        _list(files, manifest, entry["library"], kept.graph, kept.count + len(vectors))
        manifest["index"]["dead"] = entry["dead"]


def read(files: GalleryFolder, manifest: dict[str, Any]) -> KeptIndex:
    """Read the index that is listed.

    Raises:
        ValueError: There is none, or its file is damaged.
        ImportError: Its library is not installed.
    """
    entry = manifest["index"]
    if entry is None:
        raise ValueError(f"{files.path} has no index: run `kinfold gallery index {files.path}`, or search exactly")
    graph = create_index(entry["library"], manifest["dim"], files.open_file(entry).read())
    return KeptIndex(graph, entry["count"], entry["next_key"])


def read_keys(files: GalleryFolder, manifest: dict[str, Any]) -> Array:
    """Return the keys of all listed items, ascending, (N,)."""
    parts = [files.open_chunk(entry, manifest["dim"]).read_items().keys for entry in manifest["chunks"]]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _list(files: GalleryFolder, manifest: dict[str, Any], library: str, graph: GraphIndex, count: int) -> None:
    next_key = manifest["next_key"]
    file = files.write_file(manifest, "index", library, graph.to_bytes())
    manifest["index"] = {**file, "library": library, "next_key": next_key, "count": count, "dead": 0}


def _find_rows(candidates: Array | None, keys: Array) -> tuple[Tensor, Tensor]:
    """Return queries (T,) and rows (T,) of candidate keys (Q, c) that are among `keys`, ascending."""
    if candidates is None or not len(keys):
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    position = np.searchsorted(keys, candidates).clip(max=len(keys) - 1)
    query, column = np.nonzero(keys[position] == candidates)
    return torch.from_numpy(query), torch.from_numpy(position[query, column])


def _skip_rows(chunks: Sequence[Tensor], count: int) -> list[Tensor]:
    """Return the chunks without their first `count` rows."""
    rest = []
    for chunk in chunks:
        rest.append(chunk[min(count, len(chunk)) :])
        count = max(0, count - len(chunk))
    return [chunk for chunk in rest if len(chunk)]


def _read_chunks(files: GalleryFolder, manifest: dict[str, Any]) -> list[Tensor]:
    return [files.open_chunk(entry, manifest["dim"]).read_vectors() for entry in manifest["chunks"]]
