"""What a report works out is kept in the run, so that the next report need not."""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data import Dataset, EncodedImages, ImageFiles, Rows
from kinfold.files import check_path, make_folder
from kinfold.training import Run
from kinfold.training.state import read_state, write_state

VERSION = 2  # of what is kept; another number makes all of it anew


def kept(folder: Path, name: str, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What lies in cache/NAME of a folder where it is of this key; else what `make` gives, kept for the next time.

    Damaged files count as absent: they carry their sha256. A folder that cannot be written to only costs the time. A
    link in its place is refused.
    """
    file = folder / "cache" / f"{name}.safetensors"
    check_path(file, folder)
    whole_key = f"{VERSION} {key}"
    with suppress(ValueError, OSError):
        found = read_state(file, within=folder)
        if isinstance(found, dict) and found.get("key") == whole_key and isinstance(found.get("value"), dict):
            value: dict[str, Any] = found["value"]
            return value
    made = make()
    with suppress(OSError):
        make_folder(file.parent, folder)
        write_state(file, {"key": whole_key, "value": made}, folder)
    return made


def digest(parts: Iterable[str | bytes]) -> str:
    """One word for all of them, in this order."""
    found = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        found.update(len(content).to_bytes(8, "little"))
        found.update(content)
    return found.hexdigest()[:32]


def weight_files(run: Run) -> list[Path]:
    """Where the weights lie that `run.model()` takes: selected, best so far or newest; none before there are any."""
    for path in (run.place.model, run.place.best):
        if path.is_file():
            return [path]
    return sorted(run.place.checkpoints.glob("*.safetensors"))[-1:]


def digest_of_files(paths: Iterable[Path]) -> str:
    return digest(hashlib.sha256(path.read_bytes()).digest() for path in paths)


def identity(dataset: Dataset) -> str:
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
        about.append(items.digest())
    else:
        about += [hashlib.sha256(np.ascontiguousarray(items[place]).data).digest() for place in range(len(items))]
    return digest(about)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_size, known.st_mtime_ns
