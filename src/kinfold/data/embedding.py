"""From images to a feature file, so that a run that was stopped goes on where it was.

Features are kept in parts beside the file until all are there; each part appears whole or not at all, and one process
works on a file at a time.
"""

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from kinfold.data.dataset import Dataset
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.image_reading import BACKGROUND, Mode
from kinfold.data.images import Errors
from kinfold.data.items import Array, ImageFiles
from kinfold.data.loading import Batches, SequentialBatches
from kinfold.data.transforms import Transform
from kinfold.files.atomic import remove_unfinished, write_atomic, write_json
from kinfold.files.checksums import SHA256, add_checksum, compute_sha256
from kinfold.files.documents import IntegerRange, read_json
from kinfold.files.locks import lock_folder
from kinfold.files.paths import check_path, read_bytes, remove_file

Model = Callable[[Tensor], Tensor]
PART = 2048  # items, about
_PART = re.compile(r"[0-9]{12}\.npz")
LIST = [{"file": _PART, "count": IntegerRange(1, 1 << 40), "sha256": SHA256}]


def flatten_pixels(images: Tensor) -> Tensor:
    """The simplest embedding: grey or colour values between 0 and 1, (B, C * H * W)."""
    return images.float().div(255.0).flatten(1)


def embed_to_file(
    dataset: Dataset,
    out: Path | str,
    model: Model = flatten_pixels,
    *,
    about: dict[str, Any] | None = None,
    transform: Transform | None = None,
    normalize: Callable[[Tensor], Tensor] | None = None,
    mode: Mode = "RGB",
    background: str = BACKGROUND,
    batch_size: int = 256,
    workers: int = 0,
    errors: Errors = "raise",
    progress: Callable[[str, float], None] | None = None,
) -> dict[int, str]:
    """Write embeddings, labels, classes, split (and coarse labels and roles) of a data set to an .npz file.

    `about` says what the embedding depends on (model, weights, transform); parts left by a run with another `about` or
    another data set are refused, and so is a second process that writes the same file. Gives what could not be read, by
    position, where `errors="skip"`; those have no row. The file holds the sha256 of its arrays, which is checked when
    it is read.
    """
    out = Path(out)
    if out.suffix != ".npz":
        raise ValueError(f"a feature file ends in .npz, got {out.name!r}")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} to write {out.name} to")
    folder = out.with_name(out.name + ".parts")
    check_path(folder, out.parent)
    busy = f"another process is writing {out}; wait for it, or choose another file"
    with lock_folder(folder, busy, "choose another file, where you may write", create=True):
        parts = Parts(folder)
        identity = {"dataset": dataset.name, "items": len(dataset), "fingerprint": compute_fingerprint(dataset)}
        parts.open({**(about or {}), **identity, "background": background, "errors": errors})
        reading = Batches(
            dataset,
            transform,
            normalize,
            batch_sampler=SequentialBatches(parts.done, len(dataset), batch_size),
            workers=workers,
            mode=mode,
            errors=errors,
            background=background,
        )
        for start, part in _parts(reading, model, parts.done, len(dataset)):
            parts.add(start, part)
            if progress is not None:
                progress("embed", parts.done / len(dataset))
        broken = _join(parts, dataset, out)
        parts.delete()
    return broken


def _join(parts: "Parts", dataset: Dataset, out: Path) -> dict[int, str]:
    """Write the feature file from all parts, every item once; gives what could not be read, by position."""
    arrays = [parts.read(entry) for entry in parts.listed]
    index = np.concatenate([part["index"] for part in arrays]) if arrays else np.zeros(0, dtype=np.int64)
    broken = {int(i): str(why) for part in arrays for i, why in zip(part["broken"], part["why"], strict=True)}
    rows = [part["features"] for part in arrays if len(part["index"])]
    if not rows:
        raise ValueError(f"none of the {len(dataset):,} items of {dataset.name} can be read; nothing is written")
    expected = np.setdiff1d(np.arange(len(dataset)), np.array([*broken], dtype=np.int64))
    if (
        not np.array_equal(index, expected)
        or sum(map(len, rows)) != len(index)
        or len({row.shape[1] for row in rows}) > 1
    ):
        raise ValueError(
            f"the parts in {parts.folder} do not make up {dataset.name}: every item must be there once, in its order "
            f"({len(dataset):,} items, {len(index):,} rows). Delete the folder and embed anew"
        )
    whole = add_checksum({"embeddings": np.concatenate(rows), "index": index, **_columns(dataset, index)})
    write_atomic(out, lambda file: np.savez(file, **whole))  # type: ignore[arg-type]  # all values are arrays
    return broken


class Parts:
    """The folder of parts beside a feature file: about.json, list.json, and an .npz file for each part.

    list.json names every part with its sha256; what it does not name is neither used nor deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listed: list[dict[str, Any]] = []

    @property
    def done(self) -> int:
        """The position up to which there are parts."""
        return sum(entry["count"] for entry in self.listed)

    def open(self, about: dict[str, Any]) -> None:
        """Begin, or go on with the parts of the same work; ValueError where they are of another one, or damaged."""
        for name in ("about.json", "list.json"):
            remove_unfinished(self.folder, re.compile(re.escape(name)), self.folder)
        remove_unfinished(self.folder, _PART, self.folder)
        note = self.folder / "about.json"
        check_path(note, self.folder)
        if not note.is_file():
            write_json(self.folder / "list.json", [], self.folder)
            write_json(note, about, self.folder)
            return
        before = read_json(note, {str: object}, self.folder)
        about = json.loads(json.dumps(about))
        changed = sorted(key for key in {*before, *about} if before.get(key) != about.get(key))
        if changed:
            raise ValueError(
                f"{self.folder} holds parts of another run: {', '.join(changed)} differ; "
                "finish that one with its own options, delete the folder, or choose another file"
            )
        path = self.folder / "list.json"
        self.listed = read_json(path, LIST, self.folder)
        done = 0
        for entry in self.listed:
            if entry["file"] != _part_name(done):
                raise ValueError(f"{path} is damaged: {entry['file']} does not begin where the part before it ends")
            done += entry["count"]
            self.read(entry)

    def add(self, start: int, arrays: dict[str, Array]) -> None:
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]  # all values are arrays
        name = _part_name(start)
        write_atomic(self.folder / name, lambda file: file.write(content.getbuffer()), self.folder)
        self.listed.append({"file": name, "count": int(arrays["count"]), "sha256": compute_sha256(content.getvalue())})
        write_json(self.folder / "list.json", self.listed, self.folder)

    def read(self, entry: dict[str, Any]) -> dict[str, Array]:
        path = self.folder / entry["file"]
        again = f"Delete {self.folder} and embed anew"
        try:
            content = read_bytes(path, self.folder)
        except OSError as wrong:
            raise ValueError(f"{path} cannot be read: {wrong.strerror}. {again}") from None
        if compute_sha256(content) != entry["sha256"]:
            raise ValueError(f"{path} is damaged: its contents are not what was written (sha256 differs). {again}")
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return {name: file[name] for name in ("features", "index", "broken", "why", "count")}
        except (ValueError, KeyError, OSError, BadZipFile, EOFError) as wrong:
            raise ValueError(f"{path} is damaged: {wrong}. {again}") from None

    def delete(self) -> None:
        """Delete what is listed, and the folder where nothing else is in it."""
        for entry in self.listed:
            remove_file(self.folder / entry["file"], self.folder)
        for name in ("list.json", "about.json", ".lock"):
            remove_file(self.folder / name, self.folder)
        with suppress(OSError):  # files of somebody else
            self.folder.rmdir()


def _part_name(start: int) -> str:
    return f"{start:012}.npz"


def _parts(reading: Batches, model: Model, start: int, count: int) -> Iterator[tuple[int, dict[str, Array]]]:
    """(first position, arrays) of about PART items each."""
    features: list[Array] = []
    indices: list[Array] = []
    told: set[int] = set()
    with torch.inference_mode():
        for batch in reading:
            features.append(model(batch.images).float().cpu().numpy())
            indices.append(batch.indices.numpy())
            until = int(batch.indices[-1]) + 1
            if until - start >= PART:
                yield start, _part(features, indices, reading.skipped, told, start, until)
                start, features, indices = until, [], []
    if start < count:
        yield start, _part(features, indices, reading.skipped, told, start, count)


def _part(
    features: list[Array], indices: list[Array], skipped: dict[int, str], told: set[int], start: int, until: int
) -> dict[str, Array]:
    broken = sorted(index for index in skipped if start <= index < until and index not in told)
    told.update(broken)
    return {
        "features": np.concatenate(features) if features else np.zeros((0, 0), dtype=np.float32),
        "index": np.concatenate(indices) if indices else np.zeros(0, dtype=np.int64),
        "broken": np.array(broken, dtype=np.int64),
        "why": np.array([skipped[index] for index in broken], dtype=str),
        "count": np.array(until - start),
    }


def _columns(dataset: Dataset, index: Array) -> dict[str, Array]:
    rows = torch.from_numpy(index)
    columns = {"labels": np.array(dataset.classes)[dataset.labels[rows].numpy()], "split": dataset.split[index]}
    if dataset.coarse is not None and dataset.coarse_classes is not None:
        columns["coarse"] = np.array(dataset.coarse_classes)[dataset.coarse[rows].numpy()]
    if dataset.role is not None:
        columns["role"] = dataset.role[index]
    if isinstance(dataset.items, ImageFiles):
        columns["path"] = dataset.items.paths[index]
    return columns
