"""Images in an adaptation: features of a backbone that are computed once, and the training of its last stages."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinfold.adaptation.candidates import PER_CLASS, LinearCandidate, TunedCandidate, list_tuned_candidates
from kinfold.adaptation.class_splits import ClassSplit
from kinfold.adaptation.measuring import Measurer, run_and_record
from kinfold.adaptation.plan import TUNE_MEASUREMENTS
from kinfold.data import Dataset, Rows, create_dataset, load
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.distributed import World
from kinfold.embedding import Encoder, compute_embeddings, embed_to_file
from kinfold.files.checksums import digest_parts
from kinfold.files.documents import nan_to_null
from kinfold.metrics import Distance
from kinfold.models import create
from kinfold.models.backbone import Backbone
from kinfold.models.initialization import load_linear_map
from kinfold.models.lora import find_attention, has_peft
from kinfold.models.precomputed import PrecomputedFeatures
from kinfold.training import Run
from kinfold.training.batch_shape import fit_batch_shape
from kinfold.training.builder import RunBuilder
from kinfold.training.components import build_pipeline
from kinfold.training.config import configure
from kinfold.training.config.parsing import to_tables, to_toml
from kinfold.training.config.settings import DataConfig
from kinfold.training.run_folder import RunFolder

MAX_IMAGES = 600  # of held-out classes, embedded for each measurement on a split
_EMBED_BATCH = 32
_TRIAL_IMAGES = 8
_TRIAL_STEPS = (1, 3)
_MAX_CACHED = 4000  # images that are kept decoded during fine-tuning


@dataclass(frozen=True)
class ImageNetwork:
    """The backbone that embeds the images of an adaptation.

    Args:
        backbone: A name of `kinfold.list("backbones")`.
        weights: "imagenet", a weight file, or None for random weights.
        source: The table [data] of a recipe that names the images.
    """

    backbone: str
    weights: str | None
    source: Mapping[str, Any] = field(default_factory=dict)

    def embed_once(self, images: Dataset, folder: Path, report: Callable[[str, float], None]) -> Dataset:
        """Compute the features of all images, or read them; an interrupted process continues.

        Args:
            images: The images.
            folder: Where the feature file is; its name has the fingerprint of images and backbone.
            report: Called with a stage and the share that is finished.

        Returns:
            The features with labels and splits of the images.
        """
        encoder = Encoder.from_backbone(self.backbone, self.weights)
        key = digest_parts([compute_fingerprint(images), str(encoder.fingerprint)])[:16]
        path = folder / f"features-{key}.npz"
        if not path.is_file():
            embed_to_file(images, path, encoder, batch_size=_EMBED_BATCH, progress=report)
        stored = load("features", path)
        assert isinstance(stored.items, Rows)
        rows = stored.items.array()
        if len(rows) != len(images):
            raise ValueError(f"{path} has {len(rows):,} rows for {len(images):,} images: delete it to embed again")
        return create_dataset(images.name, Rows(rows), np.array(images.classes)[images.labels.numpy()], images.split)

    def create_backbone(self) -> Backbone:
        """Create the backbone."""
        return create(self.backbone, weights=self.weights).backbone

    def model_table(self) -> dict[str, Any]:
        """Return the part of [model] that describes the backbone."""
        table = {"backbone": self.backbone, "batch_norm": "frozen-statistics", "memory_format": "channels-last"}
        return table if self.weights is None else {**table, "weights": self.weights}

    def data_table(self, count: int) -> dict[str, Any]:
        """Return [data] for the training of this many images."""
        cache = {"cache": True, "short_side": 256} if count <= _MAX_CACHED else {}
        return {"name": "folder", **self.source, **cache, "validation": 0.0}

    def write_run(self, folder: Path | str, features: Run, images: Dataset, distance: Distance) -> Run:
        """Write a run that embeds images: the backbone as it is, with the head of a run on its features.

        Args:
            folder: The folder of the new run; one that was begun here is finished.
            features: A finished run on the features of the backbone.
            images: The dataset.
            distance: How embeddings are compared.
        """
        config = features.config
        tables = {
            "seed": config.seed,
            "data": {"name": "folder", **self.source, "validation": 0.0},
            "model": {**self.model_table(), "head": config.model.head, "dim": config.model.dim, "init": "random"},
            "sampler": {"name": "random", "batch_size": min(80, len(images))},
            "training": {"steps": 0},
            "evaluation": {"selection": "last", "distance": distance},
        }
        run_folder = RunFolder(folder)
        builder = RunBuilder(configure(tables), images, World())
        trained = features.model()
        assert isinstance(trained.backbone, PrecomputedFeatures)
        trained.backbone.fold_into(trained.head)
        builder.model.head.load_state_dict(trained.head.state_dict())
        if not run_folder.begun:
            run_folder.begin(to_toml(to_tables(builder.config)), builder.describe())
        with run_folder.lock():
            scores = {key: value for key, value in features.scores.items() if key not in ("model_sha256", "sha256")}
            run_folder.finish(features.weights_step, builder.model.state_dict(), nan_to_null(scores))
        return Run(run_folder, builder.config, images)


class Tuner:
    """Fine-tunes the last stages of a backbone, or adapters in it, on splits of the training images.

    Args:
        network: The backbone.
        images: The training images, in the order of the rows of `measurer`.
        measurer: Measures on their features.
    """

    def __init__(self, network: ImageNetwork, images: Dataset, measurer: Measurer) -> None:
        self.network, self.images, self.measurer = network, images, measurer

    def list_candidates(self, start: LinearCandidate, loss: str) -> list[TunedCandidate]:
        """List what is trained, with a head that starts from a linear map: the last stages, or adapters."""
        backbone = self._backbone
        return list_tuned_candidates(
            start, loss, self.measurer.width, len(backbone.stages), bool(find_attention(backbone)) and has_peft()
        )

    @cached_property
    def _backbone(self) -> Backbone:
        return self.network.create_backbone()

    def measure(
        self, split: ClassSplit, candidate: TunedCandidate, steps: int, every: int, limit: int | None = None
    ) -> list[list[dict[str, float]]]:
        """Train on the images of the classes that a split keeps, and measure on those that it holds out.

        Args:
            split: The split.
            candidate: How to train.
            steps: Training steps.
            every: Steps between two measurements.
            limit: Images that are measured, in a trial that only takes the time.

        Returns:
            Metrics before the first step and after every `every` steps, in a list of one; zeros after a divergence.
        """
        measurer = self.measurer
        fitted, measured = measurer.choose_rows(split)
        measured = measured[:limit]
        mask = np.zeros(len(self.images), dtype=bool)
        mask[fitted] = mask[measured] = True
        names = np.full(len(self.images), "train", dtype="<U10")
        names[measured] = "validation"
        dataset = replace(self.images, split=names).where(mask, relabel=True)
        start = measurer.fit_start(split, candidate.start, standardized=False)
        sizes = torch.bincount(measurer.labels[torch.from_numpy(fitted)])
        tables = candidate.tables(
            {**self.network.model_table(), "init": "random", "dim": len(start.weight)},
            fit_batch_shape(sizes[sizes > 0].tolist(), candidate.batch_size, PER_CLASS),
            steps,
            measurer.seed,
        )
        tables["data"] = self.network.data_table(len(dataset))
        tables["evaluation"] = measurer.evaluation_table(every)
        tables["evaluation"]["batch_size"] = _EMBED_BATCH
        config = configure(tables)
        builder = RunBuilder(config, dataset, World())
        load_linear_map(builder.model.head, start.scale(config.model.init_length))  # type: ignore[arg-type]  # linear
        return run_and_record(builder, measurer.metrics, steps, every)

    def time_training(self, split: ClassSplit, candidate: TunedCandidate) -> tuple[float, float]:
        """Return the seconds of a training step, and those of a training beside its steps."""
        seconds = []
        for steps in _TRIAL_STEPS:
            start = time.perf_counter()
            self.measure(split, candidate, steps, steps, _TRIAL_IMAGES)
            seconds.append(time.perf_counter() - start)
        step = max(1e-4, (seconds[1] - seconds[0]) / (_TRIAL_STEPS[1] - _TRIAL_STEPS[0]))
        mask = np.arange(len(self.images)) < _TRIAL_IMAGES
        embedder = create(self.network.backbone, weights=self.network.weights)
        pipeline = build_pipeline(DataConfig(), embedder)
        start = time.perf_counter()
        compute_embeddings(embedder, self.images.where(mask), pipeline, batch_size=_EMBED_BATCH)
        image = (time.perf_counter() - start) / max(1, int(mask.sum()))
        measured = len(self.measurer.choose_rows(split)[1])
        return step, max(0.0, seconds[0] - step) + (1 + TUNE_MEASUREMENTS) * measured * image
