"""Copies of a gallery for other programs: Parquet, faiss, usearch, LanceDB and Qdrant.

Each copy holds the unit embeddings and what belongs to them. faiss and usearch know numbers only: they hold the key of
each item, and a Parquet file beside the index maps keys to ids, labels and paths.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kinfold.files.atomic import write_atomic
from kinfold.files.parquet import import_arrow
from kinfold.gallery.reader import GalleryReader
from kinfold.optional import import_optional

_POINTS_PER_CALL = 256


def to_arrow(gallery: GalleryReader) -> Any:
    """Return an Arrow table with the columns key, id, label, path and embedding."""
    arrow = import_arrow()
    items = gallery.items
    flat = arrow.array(gallery.embeddings().numpy().reshape(-1))
    vectors = arrow.FixedSizeListArray.from_arrays(flat, gallery.dim)
    columns = {"key": arrow.array(items.keys), "id": items.ids, "label": items.labels, "path": items.paths}
    return arrow.table({**columns, "embedding": vectors})


def export_parquet(gallery: GalleryReader, out: Path) -> None:
    """Write a Parquet file, which `kinfold evaluate` and pandas read."""
    parquet = import_arrow("parquet")
    write_atomic(out, lambda file: parquet.write_table(to_arrow(gallery), file))


def export_faiss(gallery: GalleryReader, out: Path) -> None:
    """Write an exact faiss index of inner products whose ids are the keys, and OUT.parquet."""
    faiss = import_optional("faiss", "faiss", "faiss", "export to faiss")
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(gallery.dim))
    index.add_with_ids(gallery.embeddings().numpy(), gallery.items.keys)
    content = faiss.serialize_index(index).tobytes()
    write_atomic(out, lambda file: file.write(content))
    _write_items(gallery, out)


def export_usearch(gallery: GalleryReader, out: Path) -> None:
    """Write a usearch index of cosines whose keys are those of the gallery, and OUT.parquet."""
    module = import_optional("usearch.index", "usearch", "usearch", "export to usearch")
    index = module.Index(ndim=gallery.dim, metric="cos", dtype="f32")
    if len(gallery):
        index.add(gallery.items.keys.astype(np.uint64), gallery.embeddings().numpy())
    content = bytes(index.save())
    write_atomic(out, lambda file: file.write(content))
    _write_items(gallery, out)


def export_lancedb(gallery: GalleryReader, out: Path) -> None:
    """Write the table "gallery" of a LanceDB database in a folder; a table of this name is replaced."""
    lancedb = import_optional("lancedb", "lancedb", "lancedb", "export to LanceDB")
    table = to_arrow(gallery).rename_columns(["key", "id", "label", "path", "vector"])
    lancedb.connect(str(out)).create_table("gallery", table, mode="overwrite")


def export_qdrant(gallery: GalleryReader, out: Path | str) -> None:
    """Write the collection "gallery" of a Qdrant server (an address) or of a local folder; it is replaced."""
    module = import_optional("qdrant_client", "qdrant-client", "qdrant", "export to Qdrant")
    location = {"url": str(out)} if str(out).startswith("http") else {"path": str(out)}
    client = module.QdrantClient(**location)
    try:
        if client.collection_exists("gallery"):
            client.delete_collection("gallery")
        params = module.models.VectorParams(size=gallery.dim, distance=module.models.Distance.COSINE)
        client.create_collection("gallery", vectors_config=params)
        items, vectors = gallery.items, gallery.embeddings().tolist()
        rows = zip(
            items.keys.tolist(),
            items.ids.to_pylist(),
            items.labels.to_pylist(),
            items.paths.to_pylist(),
            vectors,
            strict=True,
        )
        points = [
            module.models.PointStruct(id=key, vector=vector, payload={"id": name, "label": label, "path": path})
            for key, name, label, path, vector in rows
        ]
        for start in range(0, len(points), _POINTS_PER_CALL):
            client.upsert("gallery", points[start : start + _POINTS_PER_CALL])
    finally:
        client.close()


EXPORTS: dict[str, Callable[[GalleryReader, Path], None]] = {
    "parquet": export_parquet,
    "faiss": export_faiss,
    "usearch": export_usearch,
    "lancedb": export_lancedb,
    "qdrant": export_qdrant,
}


def _write_items(gallery: GalleryReader, out: Path) -> None:
    arrow, parquet = import_arrow(), import_arrow("parquet")
    items = gallery.items
    table = arrow.table({"key": arrow.array(items.keys), "id": items.ids, "label": items.labels, "path": items.paths})
    write_atomic(out.with_name(out.name + ".parquet"), lambda file: parquet.write_table(table, file))
