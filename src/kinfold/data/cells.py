"""Items that are converted one at a time, when they are used: images or rows in lists, tables and torch datasets."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from torch import Tensor

from kinfold.data.items import Array, Box, ImageBytes, ImageFile

TABLES = {".csv": "table", ".parquet": "table", ".pq": "table", ".npz": "features", ".npy": "features"}
_SAMPLED = 64  # cells that a digest reads


class Cells:
    """Images or rows of features of any sequence; a cell is read and converted when it is used.

    Args:
        things: Sequence of cells. An image is a path, the bytes of a file, a {"bytes": ..., "path": ...} of Hugging
            Face, a Pillow image, or a uint8 array or tensor. A row is a one-dimensional array or tensor. Either may
            come first in a tuple, or as the entry "image" of a dictionary.
        kind: "image" or "row".
        indices: Positions in `things`; all if left out.
        source: Where the cells come from, for error messages.
        root: Folder that paths are relative to.
        boxes: (N, 4) of all `things`: left, upper, right, lower; a row of -1 means no box.

    Examples:
        >>> cells = Cells([np.zeros((4, 6), np.uint8), "a.png"], "image").take(np.array([1]))
        >>> len(cells), str(cells[0])
        (1, 'the list row 2: a.png')
    """

    def __init__(
        self,
        things: Any,
        kind: Literal["image", "row"],
        indices: Array | None = None,
        source: str = "the list",
        root: Path | str = "",
        boxes: Array | None = None,
    ) -> None:
        self.things, self.kind, self.source, self.root, self.boxes = things, kind, source, Path(root), boxes
        self.indices = np.arange(len(things)) if indices is None else indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Any:
        position = int(self.indices[index])
        cell = get_input(self.things[position])
        return to_row(cell, position) if self.kind == "row" else self._to_image(cell, position)

    def take(self, indices: Array) -> "Cells":
        """Return the cells at these positions, in this order, without reading any of them."""
        return Cells(self.things, self.kind, self.indices[indices], self.source, self.root, self.boxes)

    def compute_digest(self) -> bytes:
        """Return the sha256 of up to 64 evenly spaced cells: their bytes, pixels or numbers, or path and size.

        Raises:
            ValueError: Two readings of a cell differ, so that no run on these cells could be repeated or resumed.
        """
        digest = hashlib.sha256(str(len(self)).encode())
        positions = np.unique(np.linspace(0, len(self) - 1, min(len(self), _SAMPLED)).astype(np.int64)).tolist()
        for number, position in enumerate(positions):
            content = _digest_cell(self[position])
            if number == 0 and _digest_cell(self[position]) != content:
                raise ValueError(
                    f"{self.source}: two readings of item {position} differ. Leave random transforms out of the "
                    "dataset: the pipeline of the run augments, with draws that a resumed run repeats"
                )
            digest.update(content)
        return digest.digest()

    def _to_image(self, cell: Any, position: int) -> Any:
        box = None if self.boxes is None else _to_box(self.boxes[position])
        image = to_image(cell, position, self.source, self.root, box)
        if box is not None and not isinstance(image, ImageFile | ImageBytes):
            raise ValueError(f"{self.source} row {position + 1}: only images in files and bytes can have a box")
        return image


def get_input(sample: Any) -> Any:
    """Return the image or row of a sample, which may come with a label and more."""
    if isinstance(sample, tuple) and sample:
        return sample[0]
    if isinstance(sample, Mapping) and "image" in sample:
        return sample["image"]
    return sample


def to_image(
    cell: Any, position: int, source: str = "the list", root: Path | str = "", box: Box | None = None
) -> ImageFile | ImageBytes | Image.Image | Array:
    """Convert a cell to an item that `decode` takes.

    Args:
        cell: A path, bytes, {"bytes", "path"}, a Pillow image, an array or a tensor.
        position: Its position, for error messages.
        source: Where it comes from, for error messages.
        root: Folder that a path is relative to.
        box: The part of the image to use.

    Raises:
        ValueError: The cell is no image.
    """
    if isinstance(cell, Mapping) and "bytes" in cell:
        content, name = cell["bytes"], cell.get("path") or ""
        cell = content if content is not None else name or None
    else:
        name = ""
    if isinstance(cell, bytes | bytearray | memoryview):
        return ImageBytes(bytes(cell), box, position + 1, source, str(name))
    if isinstance(cell, str | Path):
        path = Path(root) / cell
        if path.suffix.lower() in TABLES or path.is_dir():
            raise ValueError(_explain_path(path))
        return ImageFile(path, box, position + 1, source)
    if isinstance(cell, ImageFile | ImageBytes | Image.Image):
        return cell
    if isinstance(cell, Tensor):
        cell = channels_last(cell.detach().cpu())
    if not isinstance(cell, np.ndarray):
        raise ValueError(
            f"item {position} is of type {type(cell).__name__}; an image is a path, the bytes of a file, a Pillow "
            "image or a uint8 array"
        )
    if cell.dtype != np.uint8:
        raise ValueError(
            f"item {position} holds {cell.dtype}; an image is uint8 with values in 0..255. The transforms of the run "
            "are applied here: leave conversions to floats, such as ToTensor, out"
        )
    return cell


def to_row(cell: Any, position: int) -> Array:
    """Convert a cell to a row of features, (d,).

    Raises:
        ValueError: The cell is no row of numbers.
    """
    if isinstance(cell, Tensor):
        cell = cell.detach().cpu().numpy()
    if isinstance(cell, Sequence) and not isinstance(cell, str | bytes):
        cell = np.asarray(cell)
    if not isinstance(cell, np.ndarray) or cell.ndim != 1 or cell.dtype.kind not in "fiu":
        kind = f"{cell.dtype} {cell.shape}" if isinstance(cell, np.ndarray) else type(cell).__name__
        raise ValueError(f"item {position} is {kind}; a row of features is one array of numbers, (d,)")
    return cell


def channels_last(tensor: Tensor) -> Array:
    """Convert a tensor to an array, and move the channels of images (C, H, W) and (N, C, H, W) to the end."""
    if tensor.ndim in (3, 4) and tensor.shape[-3] in (1, 3, 4) and tensor.shape[-1] not in (3, 4):
        tensor = tensor.movedim(-3, -1)
    array: Array = tensor.numpy()
    return array


def _explain_path(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder; read it with kinfold.data.load('folder', {str(path)!r}) and embed that"
    reader = TABLES[path.suffix.lower()]
    return f"{path} is no image; read it with kinfold.data.load({reader!r}, ...) and embed that"


def _to_box(row: Array) -> Box | None:
    left, upper, right, lower = row.tolist()
    return (left, upper, right, lower) if right >= 0 else None


def _digest_cell(item: Any) -> bytes:
    """sha256 of an item; of a file its name and size alone, so that a copy of the folder counts as the same."""
    if isinstance(item, ImageFile):
        size = item.path.stat().st_size if item.path.is_file() else -1
        return hashlib.sha256(repr((item.path.name, size, item.box)).encode()).digest()
    if isinstance(item, ImageBytes):
        return hashlib.sha256(repr(item.box).encode() + item.content).digest()
    array = np.ascontiguousarray(item)
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).digest()
