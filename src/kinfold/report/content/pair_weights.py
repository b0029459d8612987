"""Which pairs each loss looks at: dL/dS against similarity, on one batch of the run's own data."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import samplers
from kinfold.data import Dataset
from kinfold.files.cache import load_or_compute
from kinfold.files.checksums import digest_files
from kinfold.files.state import read_state
from kinfold.losses import Loss, Mined
from kinfold.pairs import normalize
from kinfold.report.content.datasets import Library
from kinfold.report.content.inputs import ReportInputs, Subject
from kinfold.report.content.json_values import number, numbers
from kinfold.report.content.path_redaction import without_places
from kinfold.training import Run, parts
from kinfold.training.run import weight_files

BINS = 40
MOST = 24  # methods
LARGEST_BATCH = 1024
LESS = 4  # items of a class, where the batches of a run cannot be drawn again


def pair_weights(found: ReportInputs, library: Library, missing: list[str]) -> list[dict[str, Any]]:
    """One entry for each method on the first data set, from its first run; why there is none joins `missing`."""
    subjects = [subject for subject in found.subjects if subject.data == found.data[0] and subject.runs]
    if len(subjects) > MOST:
        missing.append(f"pair weights: those of the first {MOST} of {len(subjects)} methods")
    entries = []
    for subject in subjects[:MOST]:
        try:
            entries.append({"name": subject.method, **_weights(subject, library)})
        except (ValueError, OSError, ImportError) as wrong:
            missing.append(f"no pair weights of {subject.method}: {without_places(str(wrong))}")
    return entries


def _weights(subject: Subject, library: Library) -> dict[str, Any]:
    run = subject.runs[0]
    files = [*weight_files(run), *_newest(run)]
    if not weight_files(run):
        raise ValueError("it has no weights yet")
    train = library.splits(run)["train"]
    key = f"{digest_files(files)} {library.identity(train)} {run.background}"
    return load_or_compute(run.folder, "report-weights", key, lambda: binned_weights(run, train))


def binned_weights(run: Run, train: Dataset) -> dict[str, Any]:
    """The mean weight of kin and of others in each bin of similarity; None where a bin is empty.

    Pairs that a miner left out count with the weight that they have, zero. A loss with proxies compares items with
    those, as they were at the last checkpoint.
    """
    given = run.config
    model = run.model()
    objective = parts.build_objective(given, len(train.classes), model)
    for path in _newest(run):
        objective.load_state_dict(read_state(path)["objective"])
    loss = objective.loss
    inner = loss.loss if isinstance(loss, Mined) else loss
    mask = np.zeros(len(train), dtype=bool)
    mask[_batch(run, train)] = True
    batch = train.where(mask)
    embeddings = run.embed(batch)
    if not embeddings.isfinite().all():
        raise ValueError("its weights are not usable: embeddings are not finite")
    weights = loss.pair_weights(embeddings, batch.labels).detach()
    similarity, kin, counted = _pairs(inner, embeddings, batch.labels)
    return _binned(similarity, weights.reshape(similarity.shape), kin, counted, inner)


def _batch(run: Run, train: Dataset) -> list[int]:
    """The first batch of the run; of a sampler that chooses by embeddings, a batch of several items of each class."""
    given = run.config
    sampler = parts.build_sampler(given, train.labels)
    if not sampler.ready:
        size = min(sampler.batch_size, len(train)) // LESS * LESS
        sampler = samplers.create("spc", train.labels, batch_size=size, per_class=LESS, seed=given.seed)
    return next(iter(sampler))[:LARGEST_BATCH]


def _pairs(loss: Loss, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, R) each: similarity as the loss sees it, who is kin, and which pairs count: not an item with itself."""
    x = normalize(embeddings.float()) if loss.normalize else embeddings.float()
    if loss.proxies is None:
        kin = labels[:, None] == labels
        return x @ x.T, kin, ~torch.eye(len(labels), dtype=torch.bool)
    centres = loss.proxies.detach().flatten(0, -2).float()
    y = normalize(centres) if loss.normalize else centres
    owner = torch.arange(loss.proxies.shape[0]).repeat_interleave(len(centres) // loss.proxies.shape[0])
    kin = labels[:, None] == owner
    return x @ y.T, kin, torch.ones_like(kin)


def _binned(similarity: Tensor, weights: Tensor, kin: Tensor, counted: Tensor, loss: Loss) -> dict[str, Any]:
    low, high = -1.0, 1.0
    if not loss.normalize:
        low, high = float(similarity[counted].min()), float(similarity[counted].max())
        high = high if high > low else low + 1.0
    place = ((similarity.double() - low) * (BINS / (high - low))).long().clamp(0, BINS - 1)
    means = []
    for mask in (kin & counted, ~kin & counted):
        count = torch.bincount(place[mask], minlength=BINS)
        total = torch.zeros(BINS, dtype=torch.float64).index_add_(0, place[mask], weights[mask].double())
        means.append([value / n if n else None for value, n in zip(total.tolist(), count.tolist(), strict=True)])
    used = [number for number in range(BINS) if means[0][number] is not None or means[1][number] is not None]
    span = slice(used[0], used[-1] + 1) if used else slice(0, 0)
    centres = [low + (place + 0.5) * (high - low) / BINS for place in range(BINS)]
    return {
        "similarity": numbers(centres[span]),
        "kin": numbers(means[0][span]),
        "others": numbers(means[1][span]),
        "batch": weights.shape[0],
        "largest": number(float(weights.abs().max())),
    }


def _newest(run: Run) -> list[Any]:
    """The last checkpoint, where the loss' own parameters are; none where it was removed."""
    return sorted(run.run_folder.checkpoints.glob("*.safetensors"))[-1:]
