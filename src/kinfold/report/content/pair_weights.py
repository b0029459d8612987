"""Which pairs a loss weights: dL/dS by similarity, on one batch of the training data."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import samplers
from kinfold.data import Dataset
from kinfold.files.cache import load_or_compute
from kinfold.files.checksums import digest_files
from kinfold.files.state import read_state
from kinfold.losses import Loss, Mined, Nested
from kinfold.pairs import normalize
from kinfold.report.charts import NEGATIVE, POSITIVE, Axis, Chart, Series
from kinfold.report.content.datasets import RunDatasets
from kinfold.report.content.inputs import ReportInputs, ReportMethod
from kinfold.report.content.json_values import round_number, round_numbers
from kinfold.report.content.path_redaction import redact_paths
from kinfold.training import Run, components

BINS = 40
MAX_METHODS = 24
MAX_BATCH = 1024
PER_CLASS = 4  # items of a class, if the sampler of a run cannot draw its batches again


def describe_pair_weights(inputs: ReportInputs, datasets: RunDatasets, missing: list[str]) -> list[Chart]:
    """Describe a chart for each method on the first dataset, from its first run; problems are added to `missing`."""
    methods = [method for method in inputs.methods if method.data == inputs.data[0] and method.runs]
    if len(methods) > MAX_METHODS:
        missing.append(f"pair weights: those of the first {MAX_METHODS} of {len(methods)} methods")
    charts = []
    for method in methods[:MAX_METHODS]:
        try:
            weights = _load_pair_weights(method, datasets)
        except (ValueError, OSError, ImportError) as error:
            missing.append(f"no pair weights of {method.name}: {redact_paths(str(error))}")
        else:
            charts.append(_describe_chart(method.name, weights))
    return charts


def _describe_chart(name: str, weights: dict[str, Any]) -> Chart:
    series = [
        Series("positive pairs", weights["similarity"], weights["positives"], POSITIVE),
        Series("negative pairs", weights["similarity"], weights["negatives"], NEGATIVE),
    ]
    y = Axis("dL/dS, mean over pairs", include_zero=True)
    return Chart(f"pair weights {name}", name, Axis("similarity"), y, series)


def _load_pair_weights(method: ReportMethod, datasets: RunDatasets) -> dict[str, Any]:
    run = method.runs[0]
    if not run.weight_files():
        raise ValueError("it has no weights yet")
    train = datasets.load_splits(run)["train"]
    key = f"{digest_files([*run.weight_files(), *_find_checkpoint(run)])} {datasets.identify(train)} {run.background}"
    return load_or_compute(run.folder, "report-weights", key, lambda: compute_pair_weights(run, train))


def compute_pair_weights(run: Run, train: Dataset) -> dict[str, Any]:
    """Compute the mean weight of positive and of negative pairs in each bin of similarity.

    Pairs that a miner left out count with weight zero. A loss with proxies compares items with proxies, as they were
    at the last checkpoint.

    Args:
        run: The run, for its model and its loss.
        train: Its training data.

    Returns:
        "similarity": Centers of the bins. "positives", "negatives": Mean weights, None for an empty bin.
        "batch": Size of the batch. "largest": The largest absolute weight.
    """
    objective = components.build_objective(run.config, len(train.classes), run.model())
    for path in _find_checkpoint(run):
        objective.load_state_dict(read_state(path)["objective"])
    loss = objective.loss.loss if isinstance(objective.loss, Nested) else objective.loss  # of the whole embedding
    pair_loss = loss.loss if isinstance(loss, Mined) else loss
    mask = np.zeros(len(train), dtype=bool)
    mask[_draw_batch(run, train)] = True
    batch = train.where(mask)
    embeddings = run.embed(batch)
    if not embeddings.isfinite().all():
        raise ValueError("its weights are not usable: embeddings are not finite")
    weights = loss.pair_weights(embeddings, batch.labels).detach()
    similarity, positive, valid = _compare(pair_loss, embeddings, batch.labels)
    return _average_in_bins(similarity, weights.reshape(similarity.shape), positive, valid, pair_loss.normalize)


def _draw_batch(run: Run, train: Dataset) -> list[int]:
    """The first batch of the run; if its sampler chooses by embeddings, a batch of several items of each class."""
    sampler = components.build_sampler(run.config, train.labels)
    if not sampler.ready:
        size = min(sampler.batch_size, len(train)) // PER_CLASS * PER_CLASS
        sampler = samplers.create("spc", train.labels, batch_size=size, per_class=PER_CLASS, seed=run.config.seed)
    return next(iter(sampler))[:MAX_BATCH]


def _compare(loss: Loss, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, R) each: similarities as the loss computes them, positive pairs, and valid pairs (no item with itself)."""
    x = normalize(embeddings.float()) if loss.normalize else embeddings.float()
    if loss.proxies is None:
        positive = labels[:, None] == labels
        return x @ x.T, positive, ~torch.eye(len(labels), dtype=torch.bool)
    proxies = loss.proxies.detach().flatten(0, -2).float()
    y = normalize(proxies) if loss.normalize else proxies
    classes = torch.arange(loss.proxies.shape[0]).repeat_interleave(len(proxies) // loss.proxies.shape[0])
    positive = labels[:, None] == classes
    return x @ y.T, positive, torch.ones_like(positive)


def _average_in_bins(
    similarity: Tensor, weights: Tensor, positive: Tensor, valid: Tensor, normalized: bool
) -> dict[str, Any]:
    low, high = -1.0, 1.0
    if not normalized:
        low, high = float(similarity[valid].min()), float(similarity[valid].max())
        high = high if high > low else low + 1.0
    bins = ((similarity.double() - low) * (BINS / (high - low))).long().clamp(0, BINS - 1)
    means = []
    for mask in (positive & valid, ~positive & valid):
        count = torch.bincount(bins[mask], minlength=BINS)
        total = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bins[mask], weights[mask].double())
        means.append([value / n if n else None for value, n in zip(total.tolist(), count.tolist(), strict=True)])
    used = [number for number in range(BINS) if means[0][number] is not None or means[1][number] is not None]
    span = slice(used[0], used[-1] + 1) if used else slice(0, 0)
    centers = [low + (number + 0.5) * (high - low) / BINS for number in range(BINS)]
    return {
        "similarity": round_numbers(centers[span]),
        "positives": round_numbers(means[0][span]),
        "negatives": round_numbers(means[1][span]),
        "batch": weights.shape[0],
        "largest": round_number(float(weights.abs().max())),
    }


def _find_checkpoint(run: Run) -> list[Path]:
    """The last checkpoint, which holds the parameters of the loss; empty if it was removed."""
    return sorted(run.run_folder.checkpoints.glob("*.safetensors"))[-1:]
