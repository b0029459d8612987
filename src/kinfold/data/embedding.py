"""From images to a feature file, so that a run that was stopped goes on where it was.

Features are kept in parts beside the file until all are there; each part appears whole or not at all.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold.data.dataset import Dataset
from kinfold.data.images import Errors, Mode
from kinfold.data.items import Array, ImageFiles
from kinfold.data.loading import Batches, Stretch
from kinfold.data.transforms import Transform
from kinfold.files import write_text, write_whole

Model = Callable[[Tensor], Tensor]
PART = 2048  # items, about


def pixels(images: Tensor) -> Tensor:
    """The simplest embedding: grey or colour values between 0 and 1, (B, C * H * W)."""
    return images.float().div(255.0).flatten(1)


def embed(
    dataset: Dataset,
    out: Path | str,
    model: Model = pixels,
    *,
    about: dict[str, Any] | None = None,
    transform: Transform | None = None,
    normalize: Callable[[Tensor], Tensor] | None = None,
    mode: Mode = "RGB",
    batch_size: int = 256,
    workers: int = 0,
    errors: Errors = "raise",
    progress: Callable[[str, float], None] | None = None,
) -> dict[int, str]:
    """Write embeddings, labels, classes, split (and coarse labels and roles) of a data set to an .npz file.

    `about` says what the embedding depends on (model, weights, transform); parts left by a run with another `about` or
    another data set are refused. Gives what could not be read, by position, where `errors="skip"`; those have no row.
    """
    out = Path(out)
    if out.suffix != ".npz":
        raise ValueError(f"a feature file ends in .npz, got {out.name!r}")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} to write {out.name} to")
    folder = out.with_name(out.name + ".parts")
    _open(folder, {**(about or {}), **_identity(dataset), "errors": errors})
    done = _finished(folder)
    reading = Batches(
        dataset,
        transform,
        normalize,
        batch_sampler=Stretch(done, len(dataset), batch_size),
        workers=workers,
        mode=mode,
        errors=errors,
    )
    for start, part in _parts(reading, model, done, len(dataset)):
        _write(folder / f"{start:012}.npz", part)
        if progress is not None:
            progress("embed", (start + int(part["count"])) / len(dataset))
    parts = [dict(np.load(path)) for path in sorted(folder.glob("*.npz"))]
    index = np.concatenate([part["index"] for part in parts])
    broken = {int(i): str(why) for part in parts for i, why in zip(part["broken"], part["why"], strict=True)}
    found = {"embeddings": np.concatenate([part["features"] for part in parts if len(part["index"])]), "index": index}
    _write(out, {**found, **_columns(dataset, index)})
    shutil.rmtree(folder)
    return broken


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


def _open(folder: Path, about: dict[str, Any]) -> None:
    """Make the folder of parts, or go on with one that belongs to the same work."""
    note = folder / "about.json"
    if note.is_file():
        before = json.loads(note.read_text())
        changed = sorted(key for key in {*before, *about} if before.get(key) != about.get(key))
        if changed:
            raise ValueError(
                f"{folder} holds parts of another run: {', '.join(changed)} differ; "
                "finish that one with its own options, delete the folder, or choose another file"
            )
        return
    folder.mkdir(exist_ok=True)
    write_text(note, json.dumps(about, indent=1))


def _finished(folder: Path) -> int:
    """The position up to which parts are there, one after the other."""
    done = 0
    for path in sorted(folder.glob("*.npz")):
        if int(path.stem) == done:
            with np.load(path) as part:
                done += int(part["count"])
        else:  # left from a longer part that was written again
            path.unlink()
    return done


def _write(path: Path, arrays: dict[str, Array]) -> None:
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]  # all values are arrays


def _identity(dataset: Dataset) -> dict[str, Any]:
    """What tells this data set from another."""
    digest = hashlib.sha256(dataset.labels.numpy().tobytes())
    if isinstance(dataset.items, ImageFiles):
        digest.update("\n".join(dataset.items.paths.tolist()).encode())
    return {"dataset": dataset.name, "items": len(dataset), "sha256": digest.hexdigest()}


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
