"""The winner of the ladder, fitted to all training classes as an ordinary run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinfold.adaptation.candidates import PER_CLASS, HeadCandidate, TunedCandidate
from kinfold.adaptation.image_network import ImageNetwork
from kinfold.adaptation.measuring import fit_final_candidate
from kinfold.adaptation.race import Winner
from kinfold.data import Dataset
from kinfold.metrics import Distance
from kinfold.training import Run, configure, train
from kinfold.training.batch_shape import fit_batch_shape


class FinalFit:
    """Fits winners to all training rows.

    Args:
        dataset: Features with the splits train and test.
        rows: Training rows, float32 (N, width).
        labels: Their classes 0..C-1, int64 (N,).
        distance: How embeddings are compared.
        seed: Seed of training.
        source: The table [data] of a recipe that names the features.
    """

    def __init__(
        self,
        dataset: Dataset,
        rows: Tensor,
        labels: Tensor,
        distance: Distance,
        seed: int,
        source: Mapping[str, Any] | None,
    ) -> None:
        self.dataset, self.rows, self.labels = dataset, rows, labels
        self.distance, self.seed, self.source = distance, seed, source or {}

    def fit_features(self, winner: Winner, folder: Path | str) -> Run:
        """Fit a linear map or a head on features; a run that was begun in the folder is continued."""
        if (Path(folder) / "configuration.toml").is_file():
            return train(None, folder, resume=True, dataset=self.dataset)
        width, classes, candidate = self.rows.shape[1], int(self.labels.max()) + 1, winner.candidate
        assert not isinstance(candidate, TunedCandidate)
        if isinstance(candidate, HeadCandidate):
            candidate = replace(candidate, start=fit_final_candidate(candidate.start, self.rows, self.labels))
            tables = candidate.tables(width, classes, self._fit_shape(candidate.batch_size), winner.steps, self.seed)
            tables["training"]["start_share"] = winner.start_share
        else:
            linear = fit_final_candidate(candidate, self.rows, self.labels)
            tables = {
                "seed": self.seed,
                "model": linear.model_table(width, classes),
                "sampler": {"name": "random", "batch_size": min(80, len(self.rows))},
                "training": {"steps": 0},
            }
        tables["data"] = {"name": "features", **self.source, "validation": 0.0}
        tables["evaluation"] = {"selection": "last", "distance": self.distance, "every": max(1, winner.steps)}
        return train(configure(tables), folder, dataset=self.dataset)

    def fit_images(
        self, winner: Winner, folder: Path | str, network: ImageNetwork, images: Dataset, head_folder: Path
    ) -> Run:
        """Fit a run that embeds images: a map or head on the features of the backbone, or the backbone too.

        Args:
            winner: What won.
            folder: The folder of the run.
            network: The backbone.
            images: The images, with the splits of the features.
            head_folder: Where a head on features is trained before it is joined to the backbone.
        """
        candidate = winner.candidate
        if not isinstance(candidate, TunedCandidate):
            return network.write_run(folder, self.fit_features(winner, head_folder), images, self.distance)
        if (Path(folder) / "configuration.toml").is_file():
            return train(None, folder, resume=True, dataset=images)
        start = fit_final_candidate(candidate.start, self.rows, self.labels)
        table = start.model_table(self.rows.shape[1], int(self.labels.max()) + 1)
        model = {key: value for key, value in table.items() if key not in ("backbone", "standardize")}
        shape = self._fit_shape(candidate.batch_size)
        tables = candidate.tables({**network.model_table(), **model}, shape, winner.steps, self.seed)
        tables["data"] = network.data_table(len(images))
        tables["evaluation"] = {
            "selection": "last",
            "distance": self.distance,
            "every": max(1, winner.steps),
            "batch_size": 32,
            "diagnose": "never",
        }
        return train(configure(tables), folder, dataset=images)

    def _fit_shape(self, batch_size: int) -> tuple[int, int]:
        return fit_batch_shape(torch.bincount(self.labels).tolist(), batch_size, PER_CLASS)
