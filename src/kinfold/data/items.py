"""What a data set holds: image files with optional boxes, or rows of an array (small images, features)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

Array = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]


class Items(Protocol):
    """A sequence of things to embed, and a part of it by positions."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...

    def take(self, indices: Array) -> Self:
        """The items at these positions, in this order, without reading any of them."""
        ...


@dataclass(frozen=True)
class ImageFile:
    """One image on disk; `box` is (left, upper, right, lower) in pixels, `row` its place in `source`."""

    path: Path
    box: Box | None
    row: int
    source: str

    def __str__(self) -> str:
        return f"{self.source} row {self.row}: {self.path}"


class ImageFiles:
    """Images on disk, named relative to one folder; nothing is opened before it is asked for.

    `source` and `rows` say where each image is listed, so that a broken one can be named: the file and its line, or
    the folder and a running number from 1. `boxes` is (N, 4): left, upper, right, lower; a row of -1 is no box.

    >>> files = ImageFiles("birds", ["wren/1.jpg", "robin/1.jpg"], source="birds.csv", rows=[2, 3])
    >>> str(files[1]).replace("\\\\", "/")
    'birds.csv row 3: birds/robin/1.jpg'
    >>> len(files.take(np.array([0])))
    1
    """

    def __init__(
        self,
        root: Path | str,
        paths: Sequence[str] | Array,
        boxes: Array | None = None,
        source: str | None = None,
        rows: Sequence[int] | Array | None = None,
    ) -> None:
        self.root = Path(root)
        self.source = str(root) if source is None else source
        # arrays, not lists: workers share them without copying a Python object per item
        self.paths = np.asarray(paths, dtype=str)
        self.rows = np.arange(1, len(self.paths) + 1) if rows is None else np.asarray(rows, dtype=np.int64)
        self.boxes = None if boxes is None else np.asarray(boxes, dtype=np.int64)
        if len(self.rows) != len(self.paths):
            raise ValueError(f"{len(self.paths)} images but {len(self.rows)} row numbers")
        if self.boxes is not None and self.boxes.shape != (len(self.paths), 4):
            raise ValueError(f"boxes must have shape ({len(self.paths)}, 4), got {self.boxes.shape}")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> ImageFile:
        box = None
        if self.boxes is not None:
            left, upper, right, lower = self.boxes[index].tolist()
            box = (left, upper, right, lower) if right >= 0 else None
        return ImageFile(self.root / str(self.paths[index]), box, int(self.rows[index]), self.source)

    def take(self, indices: Array) -> "ImageFiles":
        """The images at these positions, in this order."""
        boxes = None if self.boxes is None else self.boxes[indices]
        return ImageFiles(self.root, self.paths[indices], boxes, self.source, self.rows[indices])


class Rows:
    """Rows of one array: features (N, d), or small images (N, H, W) or (N, H, W, 3) in uint8.

    A part of it keeps the array and a list of positions, so that a memory-mapped file stays on disk.

    >>> rows = Rows(np.arange(6.0).reshape(3, 2)).take(np.array([2, 0]))
    >>> rows[0].tolist(), rows.array().shape
    ([4.0, 5.0], (2, 2))
    """

    def __init__(self, array: Array, indices: Array | None = None) -> None:
        self._array = array
        self._indices = indices

    def __len__(self) -> int:
        return len(self._array) if self._indices is None else len(self._indices)

    def __getitem__(self, index: int, /) -> Array:
        row: Array = self._array[index if self._indices is None else self._indices[index]]
        return row

    def take(self, indices: Array) -> "Rows":
        """The rows at these positions, in this order."""
        return Rows(self._array, indices if self._indices is None else self._indices[indices])

    def at(self, positions: Array) -> Array:
        """These rows at once, one below the other."""
        return np.asarray(self._array[positions if self._indices is None else self._indices[positions]])

    def array(self) -> Array:
        """All rows as one array; the file's own (memory-mapped) array where nothing was left out."""
        return self._array if self._indices is None else self._array[self._indices]
