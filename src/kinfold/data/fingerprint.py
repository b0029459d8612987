"""Fingerprints: short strings that change when a dataset changes.

A run stores the fingerprint of its data, so that it is not resumed on other data by mistake. Caches use the full form
as a key.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data.cells import Cells
from kinfold.data.dataset import Dataset
from kinfold.data.items import EncodedImages, ImageBytes, ImageFile, ImageFiles, Rows
from kinfold.data.webdataset import TarImages
from kinfold.files.checksums import digest_parts

_SAMPLED_ROWS = 4096


def compute_fingerprint(dataset: Dataset, *, full: bool = False) -> str:
    """Compute a fingerprint of the classes, labels and items of a dataset.

    Args:
        dataset: Any dataset.
        full: False (for resume checks) takes a moment: it reads the splits, the names and sizes of image files, and up
            to 4,096 evenly spaced rows of an array (64 items of a list or a torch dataset), so it may miss that a few
            items changed. True (for cache keys) reads roles, every row, and the sizes, modification times and boxes of
            image files, and ignores the splits.

    Returns:
        32 hexadecimal digits. Those of the two forms cannot be compared with each other.

    Examples:
        >>> from kinfold.data import create_dataset
        >>> birds = create_dataset("birds", Rows(np.eye(2)), ["wren", "crow"], ["train", "train"])
        >>> other = create_dataset("birds", Rows(np.eye(2)), ["crow", "wren"], ["train", "train"])
        >>> compute_fingerprint(birds) == compute_fingerprint(other)
        False
    """
    if full:
        roles = [] if dataset.role is None else [repr(dataset.role.tolist())]
        labels = dataset.labels.numpy().tobytes()
        return digest_parts([repr(dataset.classes), labels, *roles, *_describe_items(dataset.items)])
    # stored in run folders: never change these bytes
    digest = hashlib.sha256(json.dumps([len(dataset), *map(str, dataset.classes)]).encode())
    digest.update(dataset.labels.numpy().tobytes())
    digest.update("\n".join(dataset.split.tolist()).encode())
    digest.update(_sample_items(dataset.items))
    if dataset.label_table is not None:
        digest.update(f"{dataset.label_table.kind} {tuple(dataset.label_table.rows.shape)}".encode())
        digest.update(dataset.label_table.rows.numpy().tobytes())
    return digest.hexdigest()[:32]


def digest_items(dataset: Dataset) -> list[bytes]:
    """Compute a digest of 16 bytes for each item: of its content, or of path, size and modification time of a file.

    Examples:
        >>> from kinfold.data import create_dataset
        >>> birds = create_dataset("birds", Rows(np.eye(3)[[0, 1, 0]]), ["wren", "crow", "owl"], ["train"] * 3)
        >>> first, second, third = digest_items(birds)
        >>> first == third, first == second
        (True, False)
    """
    items = dataset.items
    if isinstance(items, ImageFiles):
        root = items.root.resolve()
        paths = [root / path for path in items.paths.tolist()]
        parts: Any = (repr((str(path), items[row].box, _read_stamp(path))) for row, path in enumerate(paths))
    else:
        parts = (_describe_item(items[row]) for row in range(len(items)))
    return [bytes.fromhex(digest_parts([part])) for part in parts]


def _sample_items(items: Any) -> bytes:
    if isinstance(items, Rows):
        rows = items.at(np.unique(np.linspace(0, len(items) - 1, _SAMPLED_ROWS).astype(np.int64)))
        return f"{rows.dtype} {rows.shape}".encode() + np.ascontiguousarray(rows).tobytes()
    if isinstance(items, ImageFiles):
        sizes = [(items.root / path).stat().st_size if (items.root / path).is_file() else -1 for path in items.paths]
        return json.dumps([items.paths.tolist(), sizes]).encode()
    if isinstance(items, EncodedImages | Cells | TarImages):
        return items.compute_digest()
    return str(len(items)).encode()


def _describe_items(items: Any) -> list[str | bytes]:
    if isinstance(items, ImageFiles):
        boxes = b"" if items.boxes is None else items.boxes.tobytes()
        stamps = repr([_read_stamp(items.root / path) for path in items.paths.tolist()])
        return [str(items.root.resolve()), repr(items.paths.tolist()), boxes, stamps]
    if isinstance(items, Rows):
        array = np.ascontiguousarray(items.array())
        pictures = [] if items.pictures is None else _describe_items(items.pictures)
        return [f"{array.dtype} {array.shape}", hashlib.sha256(array.data).digest(), *pictures]
    if isinstance(items, EncodedImages | TarImages):
        return [items.compute_digest()]
    return [_describe_item(items[index]) for index in range(len(items))]


def _describe_item(item: Any) -> str | bytes:
    if isinstance(item, ImageFile):
        return repr((str(item.path.resolve()), item.box, _read_stamp(item.path)))
    if isinstance(item, ImageBytes):
        return repr(item.box).encode() + hashlib.sha256(item.content).digest()
    array = np.ascontiguousarray(item)
    return f"{array.dtype} {array.shape}".encode() + hashlib.sha256(array.data).digest()


def _read_stamp(path: Path) -> tuple[int, int] | None:
    """Size and modification time; None if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
