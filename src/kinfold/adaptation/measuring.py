"""Measure candidates on held-out classes: fit to the rows of some classes, retrieve among those of others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold.adaptation.candidates import PER_CLASS, START_SHARES, HeadCandidate, LinearCandidate
from kinfold.adaptation.class_splits import ClassSplit, choose_rows
from kinfold.adaptation.map_families import MapFamilies, count_rank, fit_candidate
from kinfold.data import Rows, create_dataset
from kinfold.distributed import World
from kinfold.metrics import Distance, evaluate
from kinfold.models.heads import Residual
from kinfold.models.initialization import load_linear_map
from kinfold.models.linear_maps import LinearMap, LinearMapFitter
from kinfold.models.moments import Moments
from kinfold.models.precomputed import PrecomputedFeatures
from kinfold.training.batch_shape import fit_batch_shape
from kinfold.training.builder import RunBuilder
from kinfold.training.config import configure
from kinfold.training.evaluation import mix_weights
from kinfold.training.loop import Event
from kinfold.training.loop.trainer import copy_weights

Values = dict[str, float]  # metric -> value


@dataclass
class Measurer:
    """Measures candidates on splits of the training rows.

    Args:
        rows: Training rows, float32 (N, width).
        labels: Their classes 0..C-1, int64 (N,).
        splits: The splits of the classes.
        metrics: What is measured.
        distance: How embeddings are compared.
        seed: Seed of training and of draws of rows.
        max_rows: Rows of held-out classes that are measured, at most.
    """

    rows: Tensor
    labels: Tensor
    splits: Sequence[ClassSplit]
    metrics: Sequence[str]
    distance: Distance
    seed: int
    max_rows: int

    def __post_init__(self) -> None:
        self.width = self.rows.shape[1]
        self.classes = int(self.labels.max()) + 1
        self._shift = self.rows[:: max(1, len(self.rows) // 4096)].double().mean(dim=0)
        self._moments: dict[tuple[int, ...], Moments] = {}  # of the folds of one repeat
        self._repeat = -1
        self._starts: dict[tuple[int, str, bool], LinearMap] = {}

    def measure_linear(self, split: ClassSplit, candidates: Sequence[LinearCandidate]) -> dict[str, Values]:
        """Fit linear maps to the classes that a split keeps, and measure them on those that it holds out.

        Returns:
            Candidate -> metrics; zeros for a map that these rows do not determine.
        """
        measured = self.choose_rows(split)[1]
        labels = self.labels[measured]
        families = MapFamilies(self._sum_moments(split), self.rows[measured])
        return {candidate.name: self._evaluate(families.embed(candidate), labels) for candidate in candidates}

    def measure_head(self, split: ClassSplit, candidate: HeadCandidate, steps: int, every: int) -> list[list[Values]]:
        """Train a head on the classes that a split keeps, and measure it on those that it holds out.

        Args:
            split: The split.
            candidate: The head.
            steps: Training steps.
            every: Steps between two measurements.

        Returns:
            Before the first step and after every `every` steps, the metrics with each of `START_SHARES` of the first
            weights; zeros after training diverged.
        """
        fitted, measured = self.choose_rows(split)
        positions = torch.from_numpy(np.concatenate([fitted, measured]))
        names = np.repeat(["train", "validation"], [len(fitted), len(measured)])
        dataset = create_dataset("X", Rows(self.rows[positions].numpy()), self.labels[positions].numpy(), names)
        sizes = torch.bincount(self.labels[torch.from_numpy(fitted)])
        shape = fit_batch_shape(sizes[sizes > 0].tolist(), candidate.batch_size, PER_CLASS)
        tables = candidate.tables(self.width, int((sizes > 0).sum()), shape, steps, self.seed)
        start = self.fit_start(split, candidate.start)
        tables["model"] |= {"init": "random", "dim": len(start.weight)}
        tables["model"].pop("init_shrinkage", None)
        tables["data"] = {"name": "X"}
        tables["evaluation"] = self.evaluation_table(every)
        config = configure(tables)
        builder = RunBuilder(config, dataset, World())
        _load_start(builder.model, start.scale(config.model.init_length))
        rows, labels = self.rows[torch.from_numpy(measured)], self.labels[torch.from_numpy(measured)]
        first = copy_weights(builder.model)

        def measure_mixed(share: float) -> Values:
            weights = mix_weights(first, builder.model.state_dict(), share)
            with torch.inference_mode():
                return self._evaluate(torch.func.functional_call(builder.model, weights, rows), labels)

        return run_and_record(builder, self.metrics, steps, every, measure_mixed)

    def evaluation_table(self, every: int) -> dict[str, Any]:
        """Return [evaluation] of a training that is measured after every so many steps."""
        return {
            "every": every,
            "metrics": [*self.metrics],
            "metric": self.metrics[0],
            "selection": "last",
            "distance": self.distance,
            "diagnose": "never",
            "batch_size": 4096,
        }

    def choose_rows(self, split: ClassSplit) -> tuple[Any, Any]:
        """Return the positions of the rows that a split fits to, and of those that it measures."""
        return choose_rows(self.labels.numpy(), split, self.seed, self.max_rows)

    def _evaluate(self, embeddings: Tensor, labels: Tensor) -> Values:
        if not embeddings.isfinite().all():
            return dict.fromkeys(self.metrics, 0.0)
        values = evaluate(embeddings, labels, metrics=self.metrics, distance=self.distance)
        return _replace_nan({name: float(values[name]) for name in self.metrics})

    def _sum_moments(self, split: ClassSplit) -> Moments:
        """Moments of a split are the sum of those of the other folds of its repeat, each of which is computed once."""
        if split.repeat != self._repeat:
            self._moments, self._repeat = {}, split.repeat
        others = [other for other in self.splits if other.repeat == split.repeat and other != split]
        for fold in others:
            if fold.held_out not in self._moments:
                mask = torch.isin(self.labels, torch.tensor(fold.held_out))
                moments = Moments(self.width, self.classes, self._shift)
                self._moments[fold.held_out] = moments.update(self.rows[mask], self.labels[mask])
        merged = self._moments[others[0].held_out]
        for fold in others[1:]:
            merged = merged.merge(self._moments[fold.held_out])
        return merged

    def fit_start(self, split: ClassSplit, candidate: LinearCandidate, standardized: bool = True) -> LinearMap:
        """Fit the map that a head starts from, with outputs of root mean square length 1.

        Args:
            split: Its classes that are not held out.
            candidate: The map.
            standardized: Whether the head gets rows that `PrecomputedFeatures` standardizes.
        """
        key = (split.number, candidate.name, standardized)
        if key not in self._starts:
            fitter = LinearMapFitter(self._sum_moments(split))
            covariance, mean = fitter.moments.total_covariance(), fitter.moments.mean
            linear_map = fit_candidate(fitter, candidate)
            length = (linear_map.weight @ covariance * linear_map.weight).sum().sqrt()
            weight, bias = linear_map.weight / length, linear_map.bias / length
            if standardized:
                bias = bias + weight @ mean
                weight = weight * covariance.trace().sqrt()  # the scale of `PrecomputedFeatures.standardize`
            self._starts[key] = LinearMap(weight.float(), bias.float(), linear_map.values)
        return self._starts[key]


def run_and_record(
    builder: RunBuilder,
    metrics: Sequence[str],
    steps: int,
    every: int,
    measure_mixed: Callable[[float], Values] | None = None,
) -> list[list[Values]]:
    """Train and measure.

    Args:
        builder: What is trained.
        metrics: Names of the metrics.
        steps: Training steps.
        every: Steps between two measurements.
        measure_mixed: Returns metrics of the weights of the moment with a share of the first ones.

    Returns:
        Before the first step and after every `every` steps, metrics without and with shares of the first weights; zeros
        after a divergence.
    """
    values: list[list[Values]] = []

    def record(event: Event) -> None:
        if event.kind == "evaluation":
            entry = [_replace_nan({name: event.values[name] for name in metrics})]
            if measure_mixed is not None and event.step > 0:
                entry += [measure_mixed(share) for share in START_SHARES[1:]]
            values.append(entry)

    builder.build_trainer(None, [record]).fit()
    count = 1 if measure_mixed is None else len(START_SHARES)
    missing = 1 + steps // every - len(values)
    return values + [[dict.fromkeys(metrics, 0.0)] * count] * missing


def _load_start(model: Any, start: LinearMap) -> None:
    assert isinstance(model.backbone, PrecomputedFeatures)
    load_linear_map(model.head.linear if isinstance(model.head, Residual) else model.head, start)


def _replace_nan(values: Mapping[str, float]) -> Values:
    return {name: 0.0 if value != value else value for name, value in values.items()}


def fit_final_candidate(candidate: LinearCandidate, rows: Tensor, labels: Tensor) -> LinearCandidate:
    """Lower the dimensions of a candidate to those in which all training rows vary, for its run."""
    if candidate.kind not in ("pca", "half-whiten", "whiten") or candidate.shrinkage:
        return candidate
    fitter = LinearMapFitter(Moments(rows.shape[1]).update(rows))
    rank = count_rank(fitter)
    dim = rows.shape[1] if candidate.dim is None else candidate.dim
    return candidate if rank >= dim else replace(candidate, dim=rank)
