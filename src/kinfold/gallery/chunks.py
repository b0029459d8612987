"""Chunks of a gallery: unit vectors in a safetensors file, and the table of their items in a Parquet file.

A file is mapped into memory when the gallery is opened, and its sha256 is checked when it is first used.
"""

import hashlib
import json
import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from kinfold.files.paths import open_mapped
from kinfold.gallery.item_table import ItemTable

TENSOR_NAME = "embeddings"


class MappedFile:
    """A file that is mapped into memory, and whose contents are checked before they are used.

    A writer that replaces the file does not change what is mapped.

    Args:
        path: The file.
        sha256: The checksum that it must have.
        within: A folder; no link is followed below it.

    Raises:
        ValueError: The file is missing or empty.
    """

    def __init__(self, path: Path, sha256: str, within: Path) -> None:
        self.path = path
        self.sha256 = sha256
        self._map = open_mapped(path, within)
        self._verified = False

    def read(self) -> mmap.mmap:
        """Return the contents.

        Raises:
            ValueError: They are not what was written.
        """
        if not self._verified:
            if hashlib.sha256(self._map).hexdigest() != self.sha256:
                raise ValueError(
                    f"{self.path} is damaged: its contents are not what was written (sha256 differs). Restore it from "
                    "a copy, or build the gallery again"
                )
            self._verified = True
        return self._map


@dataclass
class GalleryChunk:
    """Items that were added together.

    Args:
        count: The number of items.
        dim: The length of a vector.
        vectors: The file of the vectors.
        items: The file of the table.
    """

    count: int
    dim: int
    vectors: MappedFile
    items: MappedFile
    _tensor: Tensor | None = field(default=None, repr=False)
    _table: ItemTable | None = field(default=None, repr=False)

    def read_vectors(self) -> Tensor:
        """Return the unit vectors, float32 (count, dim), in mapped memory; they must not be changed."""
        if self._tensor is None:
            self._tensor = _parse_vectors(self.vectors.read(), self.count, self.dim, self.vectors.path)
        return self._tensor

    def read_items(self) -> ItemTable:
        """Return the table of the items."""
        if self._table is None:
            self._table = ItemTable.from_parquet(self.items.read(), self.count, self.items.path)
        return self._table


def pack_vectors(vectors: Tensor) -> bytes:
    """Return the contents of a safetensors file."""
    return save({TENSOR_NAME: vectors.contiguous()})


def _parse_vectors(content: mmap.mmap, count: int, dim: int, path: Path) -> Tensor:
    try:
        length = int.from_bytes(content[:8], "little")
        header: Any = json.loads(content[8 : 8 + length])
        entry = header[TENSOR_NAME]
        start, end = entry["data_offsets"]
        fits = entry["dtype"] == "F32" and entry["shape"] == [count, dim] and end - start == 4 * count * dim
        if not fits or 8 + length + end > len(content):
            raise ValueError("another type or shape")
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged: it must hold {count:,} float32 vectors of {dim} numbers") from None
    array = np.frombuffer(content, dtype=np.float32, count=count * dim, offset=8 + length + start)
    return torch.from_numpy(array.reshape(count, dim))
