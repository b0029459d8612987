"""`RunBuilder` puts everything together that a run needs: data, network, objective and training loop."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from kinfold import models
from kinfold.data import Batches, Dataset, Pipeline
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.loading import SequentialBatches
from kinfold.distributed import World
from kinfold.embedding.compute import compute_embeddings
from kinfold.losses import Mined
from kinfold.metrics.graded import check_metric
from kinfold.models import Embedder
from kinfold.models.backbone import Backbone
from kinfold.models.embedder import MemoryFormat
from kinfold.training.components import (
    build_objective,
    build_pipeline,
    build_sampler,
    relate_items,
    shard_objective,
    try_objective,
)
from kinfold.training.config.parsing import to_tables
from kinfold.training.config.resolution import resolve_config
from kinfold.training.config.settings import RunConfig
from kinfold.training.environment import choose_device, describe_environment
from kinfold.training.evaluation import compute_metrics
from kinfold.training.initial_model import create_architecture, create_initial_model, fit_initial_model
from kinfold.training.kept_results import compute_features
from kinfold.training.loop.logs import JsonLogger, create_logger
from kinfold.training.loop.objective import Objective
from kinfold.training.loop.optimizers import build_optimizer
from kinfold.training.loop.selection import Selection
from kinfold.training.loop.step import Step
from kinfold.training.loop.trainer import Callback, Evaluate, Trainer, copy_weights
from kinfold.training.memory_format import choose_memory_format, count_trial_images, needs_trial, time_memory_formats
from kinfold.training.run_folder import RunFolder
from kinfold.training.splits import HeldOutTest, assign_splits, cache_in_memory, load_dataset, split_classes
from kinfold.training.step_trial import Estimate, estimate_run, needs_estimate


class RunBuilder:
    """One run on this process.

    Args:
        config: The configuration.
        dataset: Used instead of the one that the configuration names.
        world: The processes that train together.
        resumed: The weights will come from a checkpoint, so those that the run started from may be missing.
        backbone: The backbone, where model.backbone is "passed".

    Attributes:
        config: The configuration with every "auto" resolved.
        pipeline: How images are prepared; None for features.
        train, validation: The items of these splits.
        test: The held-out test classes.
        model: The network with its first weights.
        start: What was taken of the run that model.weights names; None where it names none.
        start_weights: The first weights; None where they are not known any more.
        memory_format_trial: Milliseconds by memory format, where both were tried.
        estimate: The time of the run, where it was estimated.
    """

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset | None,
        world: World,
        resumed: bool = False,
        backbone: Backbone | None = None,
    ) -> None:
        dataset = load_dataset(config.data) if dataset is None else assign_splits(dataset, config.data)
        self.config = config = resolve_config(config, dataset)
        self.world = world
        self.device = choose_device(config.training.device)
        self._dataset = dataset
        self._resumed = resumed
        self.start: dict[str, Any] | None = None
        is_start_available = True
        try:
            embedder, self.start = create_initial_model(config, backbone)
        except (ValueError, OSError):
            if not resumed:
                raise
            # the checkpoint has all weights; those that the run started from are gone
            embedder, is_start_available = create_architecture(config, backbone), False
        self.pipeline: Pipeline | None = build_pipeline(config.data, embedder)
        splits = split_classes(cache_in_memory(dataset, config.data, self.pipeline), config.data)
        self.train, self.validation = splits.train, splits.validation
        self.test = None if splits.test is None else HeldOutTest(splits.test)
        self._check_evaluation()
        self.model: Embedder = embedder.to(self.device)
        self.memory_format_trial: dict[str, float | None] | None = None
        self.estimate: Estimate | None = None
        if config.model.memory_format == "auto":
            self.config = config = self._resolve_memory_format()
        fit_initial_model(
            self.model,
            config.model,
            lambda: compute_features(self.model, self.train, self.pipeline, **self._embedding_options()),
            self.train.labels,
            (self.start or {}).get("parts", ()),
        )
        if world.size > 1:
            models.synchronize_batch_norm(self.model)
        self.start_weights: dict[str, Tensor] | None = copy_weights(self.model) if is_start_available else None

    def build_trainer(self, folder: RunFolder | None, callbacks: Sequence[Callback]) -> Trainer:
        """Build the loop.

        Args:
            folder: Where log and checkpoints are written; None writes nothing.
            callbacks: Called with every event.

        Raises:
            ValueError: The configuration does not fit the training items.
        """
        config, training, evaluation = self.config, self.config.training, self.config.evaluation
        objective = self._build_objective()
        sampler = build_sampler(config, self.train.labels)
        batches = self._build_batches(sampler, config.data.workers)
        step = Step(
            self.model,
            objective,
            seed=config.seed,
            device=self.device,
            precision=training.precision,
            micro_batch=training.micro_batch,
            mixing=config.mixup,
            world=self.world,
            scaler=torch.amp.GradScaler(self.device.type, enabled=training.precision == "float16"),
        )
        loggers: list[Callback] = []
        if folder is not None and self.world.is_first:
            loggers.append(JsonLogger(folder.log, training.log_every))
            names = dict.fromkeys([*(["tensorboard"] if training.tensorboard else []), *training.loggers])
            loggers += [create_logger(name, folder.path, to_tables(config), training.log_every) for name in names]
        steps = (training.epochs or 0) * len(batches) if training.steps is None else training.steps
        min_steps = max(config.schedule.warmup, math.ceil(evaluation.patience_after * steps))
        return Trainer(
            step,
            build_optimizer(self.model, objective, config.optimizer, idle=training.steps == 0),
            batches,
            sampler,
            steps=steps,
            schedule=config.schedule,
            selection=Selection(evaluation.selection, evaluation.metric, evaluation.patience, min_steps),
            evaluate=self._build_evaluate(),
            embed=lambda model: self.embed(model, self.train),
            evaluate_every=evaluation.every,
            evaluated_split="test" if evaluation.selection == "test-oracle" else "validation",
            head_only=training.head_only,
            clip=config.optimizer.clip,
            folder=folder,
            save_seconds=training.save_seconds,
            save_every=training.save_every,
            callbacks=[*loggers, *callbacks],
        )

    def embed(self, model: nn.Module, dataset: Dataset, **options: Any) -> Tensor:
        """Compute embeddings (N, d) in evaluation mode, on all processes together."""
        return compute_embeddings(model, dataset, self.pipeline, **self._embedding_options(), **options)

    def _embedding_options(self) -> dict[str, Any]:
        return {
            "batch_size": self.config.evaluation.batch_size,
            "device": self.device,
            "precision": self.config.training.precision,
            "workers": self.config.data.workers,
            "world": self.world,
        }

    def compute_metrics(self, model: nn.Module, dataset: Dataset, names: Sequence[str]) -> dict[str, float]:
        """Compute metrics of a model on a dataset; NaN where its embeddings are not finite."""
        embeddings = self.embed(model, dataset)
        if not embeddings.isfinite().all():
            return dict.fromkeys(names, float("nan"))
        return compute_metrics(embeddings, dataset, names, self.config.evaluation.distance)  # type: ignore[arg-type]

    def describe(self) -> dict[str, Any]:
        """Describe the machine and the data, for environment.json."""
        description = {**describe_environment(self.device), "data": compute_fingerprint(self._dataset)}
        optional = {"start": self.start, "memory_format_trial": self.memory_format_trial}
        optional["estimate"] = None if self.estimate is None else asdict(self.estimate)
        return description | {key: value for key, value in optional.items() if value is not None}

    def check_environment(self, folder: RunFolder, environment: Mapping[str, Any]) -> None:
        """Refuse to resume on other data, or before the first checkpoint from other weights, than the run began with.

        Args:
            folder: The folder of the run.
            environment: What its environment.json says.

        Raises:
            ValueError: Data or weights are different ones.
        """
        if environment.get("data") not in (None, compute_fingerprint(self._dataset)):
            raise ValueError(
                f"the data is not what {folder.path} began with: restore it, or begin a new run in another folder"
            )
        if self.start is None or environment.get("start", self.start)["sha256"] == self.start["sha256"]:
            return
        self.start_weights = None
        if not self._resumed:
            raise ValueError(
                f"{folder.path} began from other weights than those that {self.start['run']} has now: restore them, or "
                "begin a new run in another folder"
            )

    def estimate_time(self, trainer: Trainer) -> Estimate | None:
        """Estimate the time of a run on images from a short trial; None where it is short, or for features."""
        if not needs_estimate(self.model) or trainer.steps == 0 or not self.world.is_first:
            return None
        count = min(len(self.train), count_trial_images(self.device))
        evaluation = self.config.evaluation
        evaluations = 1 + trainer.steps // max(1, evaluation.every)
        watched = 0 if self.validation is None else len(self.validation)
        total = len(self._dataset)
        # validation classes at every evaluation; at the end they and the test classes, before and after training
        self.estimate = estimate_run(
            self.model,
            lambda: self._read_trial_images(count),
            batch_size=trainer.sampler.batch_size // self.world.size,
            steps=trainer.steps,
            evaluated=(evaluations * watched + 2 * (total - len(self.train))) // self.world.size,
            total=total,
            precision=self.config.training.precision,
            workers=self.config.data.workers,
        )
        return self.estimate

    def _read_trial_images(self, count: int) -> Tensor:
        images = next(iter(self._build_batches(SequentialBatches(0, count, count), workers=0))).images
        return images.to(self.device, next(self.model.parameters()).dtype)

    def _build_batches(self, sampler: Iterable[list[int]], workers: int) -> Batches:
        return Batches(
            self.train,
            None if self.pipeline is None else self.pipeline.train,
            None if self.pipeline is None else self.pipeline.normalize,
            batch_sampler=sampler,
            seed=self.config.seed,
            workers=workers,
            mode="RGB" if self.pipeline is None else self.pipeline.mode,
            background=self.config.data.background,
        )

    def _resolve_memory_format(self) -> RunConfig:
        """Return the configuration with the memory format that is faster, after setting it on all processes."""
        is_faster = 0
        if self.config.training.steps != 0 and needs_trial(self.model) and self.world.is_first:
            count = min(len(self.train), count_trial_images(self.device))
            images = self._read_trial_images(count)
            self.memory_format_trial = time_memory_formats(self.model, images, self.config.training.precision)
            is_faster = int(choose_memory_format(self.memory_format_trial) == "channels-last")
        # one process decides for all
        (is_faster,), *_ = self.world.gather_integers([is_faster])
        memory_format: MemoryFormat = "channels-last" if is_faster else "contiguous"
        self.model.set_memory_format(memory_format)
        return replace(self.config, model=replace(self.config.model, memory_format=memory_format))

    def _build_objective(self) -> Objective:
        config = self.config
        objective = build_objective(config, len(self.train.classes), self.model).to(self.device)
        if config.training.precision == "float64":
            objective.double()
        table = self.train.label_table
        if table is not None:
            relate_items(objective, config, table.to(self.device))
        try_objective(objective, config.model.dim, self.device)
        uses_proxies = not isinstance(objective.loss, Mined) and objective.loss.proxies is not None
        if (
            config.training.steps != 0
            and int(self.train.class_sizes().max()) < 2
            and not uses_proxies
            and table is None
        ):
            raise ValueError(
                f"every class has one item only, and {config.loss.name!r} needs positive pairs; give more items, or "
                "use a loss with proxies such as 'proxy-anchor'"
            )
        if config.training.shard_classes:
            shard_objective(objective, self.world)
        return objective

    def _build_evaluate(self) -> Evaluate | None:
        """Return the function that computes the metrics that selection follows; None where there is nothing to do."""
        evaluation = self.config.evaluation
        dataset = self.validation
        if evaluation.selection == "test-oracle" and self.test is not None:
            dataset = self.test.open_for_oracle()
        diagnoses = evaluation.diagnose == "always"
        if dataset is None and not diagnoses:
            return None

        def evaluate(model: nn.Module) -> dict[str, float]:
            values = {} if dataset is None else self.compute_metrics(model, dataset, evaluation.metrics)
            if diagnoses:
                diagnostics = self.compute_metrics(model, self.train, evaluation.diagnostics)
                values |= {f"train {name}": value for name, value in diagnostics.items()}
            return values

        return evaluate

    def _check_evaluation(self) -> None:
        """Raise a ValueError where a metric is unknown, or selection needs classes that there are not."""
        evaluation = self.config.evaluation
        for name in (*evaluation.metrics, *evaluation.diagnostics):
            check_metric(name, has_relation=self.train.label_table is not None)
        rule, patience = evaluation.selection, evaluation.patience
        if self.validation is None and (rule == "validation" or (patience is not None and rule == "last")):
            # name everything that needs validation classes at once, with everything to change
            users = ["evaluation.selection = 'validation'"] if rule == "validation" else []
            removals = ["--set evaluation.selection=last"] if rule == "validation" else []
            if patience is not None:
                users.append(f"evaluation.patience = {patience}")
                removals.append("--set evaluation.patience=none")
            raise ValueError(
                f"data.validation = {self.config.data.validation:g} leaves no validation classes, which "
                f"{' and '.join(users)} {'need' if len(users) > 1 else 'needs'}: hold out a share of the training "
                f"classes with --set data.validation=0.2, or do without: {' '.join(removals)}"
            )
        if rule == "validation" and self.validation is not None and int(self.validation.class_sizes().max()) < 2:
            raise ValueError("no validation class has two items; raise data.validation, or set it to 0")
        if rule == "test-oracle" and self.test is None:
            raise ValueError("evaluation.selection = 'test-oracle' needs test classes, and this data has none")
