"""Embeddings of a dataset in an .npz file, written so that an interrupted process can continue.

Features are kept in parts beside the file until all are there. Each part is written completely or not at all, and one
process at a time works on a file.
"""

import io
import json
import re
import time
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
from kinfold.data.image_reading import BACKGROUND
from kinfold.data.images import Errors
from kinfold.data.items import Array, ImageFiles
from kinfold.data.labeled import convert
from kinfold.data.loading import Batches, SequentialBatches
from kinfold.embedding.encoders import Encoder
from kinfold.files.atomic import remove_unfinished, write_atomic, write_json
from kinfold.files.checksums import SHA256, add_checksum, compute_sha256
from kinfold.files.documents import IntegerRange, read_json
from kinfold.files.locks import lock_folder
from kinfold.files.paths import check_parent, check_path, read_bytes, remove_file

PART_SIZE = 2048  # items in a part, about
PART_SECONDS = 20.0  # after which a smaller part is written: a kill loses no more
_PART_NAME = re.compile(r"[0-9]{12}\.npz")
_PART_LIST = [{"file": _PART_NAME, "count": IntegerRange(1, 1 << 40), "sha256": SHA256}]


def embed_to_file(
    dataset: Any,
    out: Path | str,
    encoder: Encoder,
    *,
    split: str | None = None,
    batch_size: int = 256,
    workers: int = 0,
    errors: Errors = "raise",
    progress: Callable[[str, float], None] | None = None,
) -> dict[int, str]:
    """Write embeddings, labels, classes and splits (and coarse labels and roles) of a dataset to an .npz file.

    The file holds the sha256 of its arrays, which is checked when it is read. Called again after an interruption, it
    continues. Parts of another encoder or another dataset are refused, and so is a second process that writes the same
    file.

    Args:
        dataset: The items, with their classes: a `Dataset`, or whatever `kinfold.data.convert` takes.
        out: The file.
        encoder: What embeds them.
        split: The split that the dataset was restricted to, recorded with the parts.
        batch_size: Items at a time.
        workers: Processes that read images.
        errors: "skip" leaves unreadable images out.
        progress: Called with a stage and the share that is finished.

    Returns:
        Why images could not be read, by position, with `errors="skip"`; they have no row.

    Raises:
        ValueError: The file cannot be written, the parts belong to another job or are damaged, or no item can be read.
    """
    dataset = convert(dataset)
    out = Path(out)
    if out.suffix != ".npz":
        raise ValueError(f"a feature file ends in .npz, got {out.name!r}")
    check_parent(out)
    pipeline = encoder.pipeline
    background = BACKGROUND if pipeline is None else pipeline.background
    job = {"dataset": dataset.name, "items": len(dataset), "fingerprint": compute_fingerprint(dataset), "split": split}
    folder = out.with_name(out.name + ".parts")
    check_path(folder, out.parent)
    occupied = f"another process is writing {out}; wait for it, or choose another file"
    with lock_folder(folder, occupied, "choose another file, where you may write", create=True):
        parts = _PartFolder(folder)
        parts.open({**encoder.description, **job, "background": background, "errors": errors})
        batches = Batches(
            dataset,
            None if pipeline is None else pipeline.test,
            None if pipeline is None else pipeline.normalize,
            batch_sampler=SequentialBatches(parts.end, len(dataset), batch_size),
            workers=workers,
            mode="RGB" if pipeline is None else pipeline.mode,
            errors=errors,
            background=background,
        )
        try:
            for start, arrays in _embed_parts(batches, encoder.model, parts.end, len(dataset)):
                parts.add(start, arrays)
                if progress is not None:
                    progress("embed", parts.end / len(dataset))
        except ValueError:  # such as a damaged image
            if not parts.entries:
                parts.delete()
            raise
        unreadable = _join_parts(parts, dataset, out, encoder.fingerprint)
        parts.delete()
    return unreadable


def _join_parts(parts: "_PartFolder", dataset: Dataset, out: Path, fingerprint: str | None) -> dict[int, str]:
    """Write the feature file from all parts; return why items could not be read, by position."""
    arrays = [parts.read(entry) for entry in parts.entries]
    index = np.concatenate([part["index"] for part in arrays]) if arrays else np.zeros(0, dtype=np.int64)
    unreadable = {int(i): str(why) for part in arrays for i, why in zip(part["broken"], part["why"], strict=True)}
    features = [part["features"] for part in arrays if len(part["index"])]
    if not features:
        raise ValueError(f"none of the {len(dataset):,} items of {dataset.name} can be read; nothing is written")
    expected = np.setdiff1d(np.arange(len(dataset)), np.array([*unreadable], dtype=np.int64))
    if (
        not np.array_equal(index, expected)
        or sum(map(len, features)) != len(index)
        or len({rows.shape[1] for rows in features}) > 1
    ):
        raise ValueError(
            f"the parts in {parts.folder} do not make up {dataset.name}: every item must be there once, in its order "
            f"({len(dataset):,} items, {len(index):,} rows). Delete the folder and embed again"
        )
    columns = {"embeddings": np.concatenate(features), "index": index, **_select_columns(dataset, index)}
    if fingerprint is not None:
        columns["fingerprint"] = np.array(fingerprint)
    content = add_checksum(columns)
    write_atomic(out, lambda file: np.savez(file, **content))  # type: ignore[arg-type]  # all values are arrays
    return unreadable


class _PartFolder:
    """The folder of parts beside a feature file: about.json, list.json, and an .npz file for each part.

    list.json names every part with its sha256. Files that it does not name are neither used nor deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[dict[str, Any]] = []

    @property
    def end(self) -> int:
        """The position up to which there are parts."""
        return sum(entry["count"] for entry in self.entries)

    def open(self, job: dict[str, Any]) -> None:
        """Begin, or continue with the parts of the same job.

        Raises:
            ValueError: The parts are of another job, or damaged.
        """
        for name in ("about.json", "list.json"):
            remove_unfinished(self.folder, re.compile(re.escape(name)), self.folder)
        remove_unfinished(self.folder, _PART_NAME, self.folder)
        job_file, list_file = self.folder / "about.json", self.folder / "list.json"
        check_path(job_file, self.folder)
        if not job_file.is_file():
            write_json(list_file, [], self.folder)
            write_json(job_file, job, self.folder)
            return
        recorded = read_json(job_file, {str: object}, self.folder)
        job = json.loads(json.dumps(job))
        changed = sorted(key for key in {*recorded, *job} if recorded.get(key) != job.get(key))
        if changed:
            raise ValueError(
                f"{self.folder} holds parts of another run: {', '.join(changed)} differ; "
                "finish that one with its own options, delete the folder, or choose another file"
            )
        self.entries = read_json(list_file, _PART_LIST, self.folder)
        start = 0
        for entry in self.entries:
            if entry["file"] != _name_part(start):
                raise ValueError(f"{list_file} is damaged: {entry['file']} does not begin where the last part ends")
            start += entry["count"]
            self.read(entry)

    def add(self, start: int, arrays: dict[str, Array]) -> None:
        """Write the part that begins at a position."""
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]  # all values are arrays
        name = _name_part(start)
        write_atomic(self.folder / name, lambda file: file.write(content.getbuffer()), self.folder)
        sha256 = compute_sha256(content.getvalue())
        self.entries.append({"file": name, "count": int(arrays["count"]), "sha256": sha256})
        write_json(self.folder / "list.json", self.entries, self.folder)

    def read(self, entry: dict[str, Any]) -> dict[str, Array]:
        """Return the arrays of a part; a ValueError where it is damaged."""
        path = self.folder / entry["file"]
        advice = f"Delete {self.folder} and embed again"
        try:
            content = read_bytes(path, self.folder)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}. {advice}") from None
        if compute_sha256(content) != entry["sha256"]:
            raise ValueError(f"{path} is damaged: its contents are not what was written (sha256 differs). {advice}")
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return {name: file[name] for name in ("features", "index", "broken", "why", "count")}
        except (ValueError, KeyError, OSError, BadZipFile, EOFError) as error:
            raise ValueError(f"{path} is damaged: {error}. {advice}") from None

    def delete(self) -> None:
        """Delete the files of the parts, and the folder where nothing else is in it."""
        for entry in self.entries:
            remove_file(self.folder / entry["file"], self.folder)
        for name in ("list.json", "about.json", ".lock"):
            remove_file(self.folder / name, self.folder)
        with suppress(OSError):  # files of somebody else
            self.folder.rmdir()


def _name_part(start: int) -> str:
    return f"{start:012}.npz"


def _embed_parts(
    batches: Batches, model: Callable[[Tensor], Tensor], start: int, count: int
) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield (first position, arrays) of about PART_SIZE items each, or of PART_SECONDS."""
    features: list[Array] = []
    indices: list[Array] = []
    reported: set[int] = set()
    began = time.monotonic()
    with torch.inference_mode():
        for batch in batches:
            features.append(model(batch.images).float().cpu().numpy())
            indices.append(batch.indices.numpy())
            end = int(batch.indices[-1]) + 1
            if end - start >= PART_SIZE or time.monotonic() - began >= PART_SECONDS:
                yield start, _build_part(features, indices, batches.skipped, reported, start, end)
                start, features, indices, began = end, [], [], time.monotonic()
    if start < count:
        yield start, _build_part(features, indices, batches.skipped, reported, start, count)


def _build_part(
    features: list[Array], indices: list[Array], skipped: dict[int, str], reported: set[int], start: int, end: int
) -> dict[str, Array]:
    broken = sorted(index for index in skipped if start <= index < end and index not in reported)
    reported.update(broken)
    return {
        "features": np.concatenate(features) if features else np.zeros((0, 0), dtype=np.float32),
        "index": np.concatenate(indices) if indices else np.zeros(0, dtype=np.int64),
        "broken": np.array(broken, dtype=np.int64),
        "why": np.array([skipped[index] for index in broken], dtype=str),
        "count": np.array(end - start),
    }


def _select_columns(dataset: Dataset, index: Array) -> dict[str, Array]:
    rows = torch.from_numpy(index)
    columns = {"labels": np.array(dataset.classes)[dataset.labels[rows].numpy()], "split": dataset.split[index]}
    if dataset.coarse is not None and dataset.coarse_classes is not None:
        columns["coarse"] = np.array(dataset.coarse_classes)[dataset.coarse[rows].numpy()]
    if dataset.role is not None:
        columns["role"] = dataset.role[index]
    if isinstance(dataset.items, ImageFiles):
        columns["path"] = dataset.items.paths[index]
    return columns
