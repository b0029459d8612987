"""Items of a dataset: image files with optional boxes, images as bytes, or rows of an array."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

Array = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]


class Items(Protocol):
    """A sequence of things to embed, of which a part can be taken by positions."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...

    def take(self, indices: Array) -> Self:
        """Return the items at these positions, in this order, without reading any of them."""
        ...


@dataclass(frozen=True)
class ImageFile:
    """One image on disk.

    Attributes:
        path: Path of the file.
        box: The part to use, (left, upper, right, lower) in pixels; None for the whole image.
        row: Number of the row in `source` that lists the image.
        source: The file or folder that lists the image, for error messages.
    """

    path: Path
    box: Box | None
    row: int
    source: str

    def __str__(self) -> str:
        return f"{self.source} row {self.row}: {self.path}"


@dataclass(frozen=True)
class ImageBytes:
    """One image as the bytes of its file.

    Attributes:
        content: The encoded image.
        box: The part to use, (left, upper, right, lower) in pixels; None for the whole image.
        row: Number of the row in `source` that holds the image.
        source: The file that holds the image, for error messages.
        name: Name of the image in `source`; may be empty.
    """

    content: bytes = field(repr=False)
    box: Box | None
    row: int
    source: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.source} row {self.row}: {self.name or 'the image'}"


class ImageFiles:
    """Images on disk, with paths relative to one folder. A file is opened only when it is used.

    Args:
        root: Folder that the paths are relative to.
        paths: Path of each image, (N,).
        boxes: (N, 4): left, upper, right, lower; a row of -1 means no box.
        source: The file or folder that lists the images, for error messages; `root` if left out.
        rows: Row number of each image in `source`, (N,); counted from 1 if left out.

    Raises:
        ValueError: The lengths of the arguments differ.

    Examples:
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
        box = _get_box(self.boxes, index)
        return ImageFile(self.root / str(self.paths[index]), box, int(self.rows[index]), self.source)

    def take(self, indices: Array) -> "ImageFiles":
        """Return the images at these positions, in this order."""
        boxes = None if self.boxes is None else self.boxes[indices]
        return ImageFiles(self.root, self.paths[indices], boxes, self.source, self.rows[indices])


class EncodedImages:
    """Images as the bytes of their files, in one block of memory. An image is decoded only when it is used.

    Args:
        buffer: The bytes of all images, uint8.
        starts, ends: Where each image begins and ends in `buffer`, (N,).
        source: The file that holds the images, for error messages.
        names: Name of each image in `source`, such as its path; may be empty.
        boxes: (N, 4): left, upper, right, lower; a row of -1 means no box.
        rows: Row number of each image in `source`, (N,); counted from 1 if left out.

    Examples:
        >>> buffer = np.frombuffer(b"onetwo", dtype=np.uint8)
        >>> images = EncodedImages(buffer, [0, 3], [3, 6], "birds.parquet", ["a.png", ""])
        >>> images[1].content, str(images[0])
        (b'two', 'birds.parquet row 1: a.png')
    """

    def __init__(
        self,
        buffer: Array,
        starts: Sequence[int] | Array,
        ends: Sequence[int] | Array,
        source: str,
        names: Sequence[str] | Array,
        boxes: Array | None = None,
        rows: Sequence[int] | Array | None = None,
    ) -> None:
        self.buffer = buffer
        self.starts = np.asarray(starts, dtype=np.int64)
        self.ends = np.asarray(ends, dtype=np.int64)
        self.source = source
        self.names = np.asarray(names, dtype=str)
        self.boxes = boxes
        self.rows = np.arange(1, len(self.starts) + 1) if rows is None else np.asarray(rows, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int, /) -> ImageBytes:
        content = self.buffer[self.starts[index] : self.ends[index]].tobytes()
        box = _get_box(self.boxes, index)
        return ImageBytes(content, box, int(self.rows[index]), self.source, str(self.names[index]))

    def take(self, indices: Array) -> "EncodedImages":
        """Return the images at these positions, in this order; the bytes are shared, not copied."""
        boxes = None if self.boxes is None else self.boxes[indices]
        rows = self.rows[indices]
        starts, ends, names = self.starts[indices], self.ends[indices], self.names[indices]
        return EncodedImages(self.buffer, starts, ends, self.source, names, boxes, rows)

    def compute_digest(self) -> bytes:
        """Return the sha256 of the images and boxes."""
        digest = hashlib.sha256((self.ends - self.starts).tobytes())
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            digest.update(self.buffer[start:end].tobytes())
        digest.update(b"" if self.boxes is None else self.boxes.tobytes())
        return digest.digest()


def _get_box(boxes: Array | None, index: int) -> Box | None:
    if boxes is None:
        return None
    left, upper, right, lower = boxes[index].tolist()
    return (left, upper, right, lower) if right >= 0 else None


class Rows:
    """Rows of one array: features (N, d), or small uint8 images (N, H, W) or (N, H, W, 3).

    A part of it keeps the array and a list of positions, so that a memory-mapped file stays on disk.

    Args:
        array: The array.
        indices: Positions in `array` of the rows to use; all rows if left out.
        pictures: Images that the rows are features of, one for each row to use. Reports show them; nothing else reads
            them.

    Raises:
        ValueError: There are more or fewer pictures than rows.

    Examples:
        >>> rows = Rows(np.arange(6.0).reshape(3, 2)).take(np.array([2, 0]))
        >>> rows[0].tolist(), rows.array().shape
        ([4.0, 5.0], (2, 2))
    """

    def __init__(self, array: Array, indices: Array | None = None, pictures: ImageFiles | None = None) -> None:
        self._array = array
        self._indices = indices
        self.pictures = pictures
        if pictures is not None and len(pictures) != len(self):
            raise ValueError(f"{len(self)} rows but {len(pictures)} pictures: give one for each row")

    def __len__(self) -> int:
        return len(self._array) if self._indices is None else len(self._indices)

    def __getitem__(self, index: int, /) -> Array:
        row: Array = self._array[index if self._indices is None else self._indices[index]]
        return row

    def take(self, indices: Array) -> "Rows":
        """Return the rows at these positions, in this order, without copying them."""
        pictures = None if self.pictures is None else self.pictures.take(indices)
        return Rows(self._array, indices if self._indices is None else self._indices[indices], pictures)

    def at(self, positions: Array) -> Array:
        """Return the rows at these positions as one array."""
        return np.asarray(self._array[positions if self._indices is None else self._indices[positions]])

    def array(self) -> Array:
        """Return all rows as one array; the original (memory-mapped) array if no row was left out."""
        return self._array if self._indices is None else self._array[self._indices]
