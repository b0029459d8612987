"""Changes of the list of chunks: items are appended at the end, or dropped by writing their chunks again."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold.gallery import probes
from kinfold.gallery.folder import GalleryFolder
from kinfold.gallery.item_table import ItemTable

CHUNK_BYTES = 1 << 25  # of the vectors of a chunk: 65,536 rows of 128 numbers


def append_items(files: GalleryFolder, manifest: dict[str, Any], rows: Tensor, table: ItemTable) -> None:
    """Write chunks at the end. Chunks before it that are no larger are joined to it, so that there are never many.

    Args:
        files: The folder.
        manifest: Its list, which is changed.
        rows: Unit vectors, float32 (N, dim).
        table: The items.
    """
    dim, new_rows = manifest["dim"], rows
    most = max(1, CHUNK_BYTES // (4 * dim))
    while manifest["chunks"] and manifest["chunks"][-1]["count"] <= len(table) < most:
        chunk = files.open_chunk(manifest["chunks"].pop(), dim)
        rows = torch.cat([chunk.read_vectors(), rows])
        table = ItemTable.concatenate([chunk.read_items(), table])
    probes.add_rows(files, manifest, new_rows)
    for start in range(0, len(table), most):
        part = np.arange(start, min(start + most, len(table)))
        manifest["chunks"].append(files.write_chunk(manifest, rows[start : start + most], table.take(part)))


def drop_items(files: GalleryFolder, manifest: dict[str, Any], column: str, values: list[str]) -> int:
    """Write the chunks that hold some items again, without these.

    Args:
        files: The folder.
        manifest: Its list, which is changed.
        column: "ids" or "labels".
        values: The ids, or labels, of the items.

    Returns:
        The number of items that were dropped.
    """
    entries, removed = [], [torch.empty(0, manifest["dim"])]
    for entry in manifest["chunks"]:
        chunk = files.open_chunk(entry, manifest["dim"])
        table = chunk.read_items()
        dropped = table.find(column, values)
        removed.append(chunk.read_vectors()[torch.from_numpy(np.flatnonzero(dropped))])
        if not dropped.any():
            entries.append(entry)
        elif not dropped.all():
            kept = np.flatnonzero(~dropped)
            rows = chunk.read_vectors()[torch.from_numpy(kept)]
            entries.append(files.write_chunk(manifest, rows, table.take(kept)))
    manifest["chunks"] = entries
    rows = torch.cat(removed)
    probes.drop_rows(files, manifest, rows)
    return len(rows)
