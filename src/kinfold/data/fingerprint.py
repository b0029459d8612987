"""A short text that stands for the data of a run, so that it is not continued on other data by mistake."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data.dataset import Dataset
from kinfold.data.items import EncodedImages, ImageFiles, Rows
from kinfold.files.checksums import digest_parts

_ROWS = 4096  # of a large array, evenly spread


def compute_fingerprint(dataset: Dataset) -> str:
    """The same for the same data, another one where labels, splits or items differ.

    Of image files names and sizes are looked at, of arrays up to 4,096 rows: it takes a moment, and may overlook that a
    few items changed.

    >>> from kinfold.data import create_dataset
    >>> birds = create_dataset("birds", Rows(np.eye(2)), ["wren", "crow"], ["train", "train"])
    >>> other = create_dataset("birds", Rows(np.eye(2)), ["crow", "wren"], ["train", "train"])
    >>> a, b = compute_fingerprint(birds), compute_fingerprint(other)
    >>> a == compute_fingerprint(birds), a == b
    (True, False)
    """
    found = hashlib.sha256()
    found.update(json.dumps([len(dataset), *map(str, dataset.classes)]).encode())
    found.update(dataset.labels.numpy().tobytes())
    found.update("\n".join(dataset.split.tolist()).encode())
    found.update(_items(dataset.items))
    return found.hexdigest()[:32]


def _items(items: Any) -> bytes:
    if isinstance(items, Rows):
        rows = items.at(np.unique(np.linspace(0, len(items) - 1, _ROWS).astype(np.int64)))
        return f"{rows.dtype} {rows.shape}".encode() + np.ascontiguousarray(rows).tobytes()
    if isinstance(items, ImageFiles):
        sizes = [(items.root / path).stat().st_size if (items.root / path).is_file() else -1 for path in items.paths]
        return json.dumps([items.paths.tolist(), sizes]).encode()
    if isinstance(items, EncodedImages):
        return items.compute_digest()
    return str(len(items)).encode()


def identify_dataset(dataset: Dataset) -> str:
    """One word for the items and labels of a data set: the numbers themselves, or files with their sizes and times."""
    about: list[str | bytes] = [repr(dataset.classes), dataset.labels.numpy().tobytes()]
    if dataset.role is not None:
        about.append(repr(dataset.role.tolist()))
    items = dataset.items
    if isinstance(items, ImageFiles):
        boxes = b"" if items.boxes is None else items.boxes.tobytes()
        about += [str(items.root.resolve()), repr(items.paths.tolist()), boxes]
        about.append(repr([_stamp(items.root / path) for path in items.paths.tolist()]))
    elif isinstance(items, Rows):
        array = np.ascontiguousarray(items.array())
        about += [f"{array.dtype} {array.shape}", hashlib.sha256(array.data).digest()]
    elif isinstance(items, EncodedImages):
        about.append(items.compute_digest())
    else:
        about += [hashlib.sha256(np.ascontiguousarray(items[place]).data).digest() for place in range(len(items))]
    return digest_parts(about)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_size, known.st_mtime_ns
