"""Probes of a gallery: items of unknown classes, each with the similarity of its nearest item of the gallery.

The similarities are kept in gallery.json, and brought up to date with every change of the items.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kinfold.gallery.chunks import pack_vectors
from kinfold.gallery.exact_search import search_chunks
from kinfold.gallery.folder import GalleryFolder
from kinfold.gallery.item_table import ItemTable

_NOTHING = -1.0  # the similarity to the nearest item of an empty gallery


def keep(
    files: GalleryFolder, manifest: dict[str, Any], rows: Tensor, table: ItemTable, options: Mapping[str, Any]
) -> None:
    """Write probes, with their similarities to the items that are listed now.

    Args:
        files: The folder.
        manifest: Its list, which is changed.
        rows: Unit vectors, float32 (P, dim).
        table: Their classes, as labels.
        options: far, origin and may_guarantee.
    """
    manifest["open_set"] = {
        **options,
        "count": len(rows),
        "vectors": files.write_file(manifest, "probes", "safetensors", pack_vectors(rows)),
        "items": files.write_file(manifest, "probes", "parquet", table.to_parquet()),
        "nearest": _search(rows, _open_chunks(files, manifest)).tolist(),
    }


def add_rows(files: GalleryFolder, manifest: dict[str, Any], rows: Tensor) -> None:
    """Take items into account that were added, unit vectors (N, dim)."""
    entry = manifest["open_set"]
    if entry is not None and len(rows):
        nearest = torch.tensor(entry["nearest"], dtype=torch.float64)
        entry["nearest"] = torch.maximum(nearest, _search(_open_probes(files, manifest), [rows])).tolist()


def drop_rows(files: GalleryFolder, manifest: dict[str, Any], rows: Tensor) -> None:
    """Take items into account that were dropped from the list, unit vectors (N, dim)."""
    entry = manifest["open_set"]
    if entry is None or not len(rows):
        return
    probes = _open_probes(files, manifest)
    nearest = torch.tensor(entry["nearest"], dtype=torch.float64)
    # only probes whose nearest item may be among them have to be searched for again
    lost = (_search(probes, [rows]) >= nearest).nonzero().squeeze(1)
    nearest[lost] = _search(probes[lost], _open_chunks(files, manifest))
    entry["nearest"] = nearest.tolist()


def _search(probes: Tensor, chunks: Sequence[Tensor]) -> Tensor:
    """Return the similarity of the nearest row, (P,) float64."""
    if not sum(len(chunk) for chunk in chunks):
        return torch.full((len(probes),), _NOTHING, dtype=torch.float64)
    return search_chunks(probes, chunks, 1)[0][:, 0]


def _open_probes(files: GalleryFolder, manifest: dict[str, Any]) -> Tensor:
    return files.open_chunk(manifest["open_set"], manifest["dim"]).read_vectors()


def _open_chunks(files: GalleryFolder, manifest: dict[str, Any]) -> list[Tensor]:
    return [files.open_chunk(entry, manifest["dim"]).read_vectors() for entry in manifest["chunks"]]
