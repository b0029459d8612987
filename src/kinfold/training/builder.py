"""Everything a run needs, put together: data, model, loss and loop; and what is done when the loop is over."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinfold import metrics, models
from kinfold.data import Batches, Dataset, Pipeline
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.distributed import World
from kinfold.files.documents import nan_to_null
from kinfold.losses import Mined
from kinfold.metrics import Distance
from kinfold.metrics.lookup import find_metric, uses_coarse_labels, uses_gallery
from kinfold.models import Embedder
from kinfold.training import parts
from kinfold.training.checking import try_objective
from kinfold.training.config.settings import RunConfig
from kinfold.training.embedding import compute_embeddings
from kinfold.training.environment import choose_device, describe_environment
from kinfold.training.folder import RunFolder
from kinfold.training.logs import JsonLines, create_tensorboard_logger
from kinfold.training.loop import Callback, Evaluate, Trainer, copy_weights, is_finite
from kinfold.training.objective import Objective
from kinfold.training.optimizers import build_optimizer
from kinfold.training.selection import Selection
from kinfold.training.start import create_architecture, create_start, fit_start
from kinfold.training.step import Step


class HeldOutTest:
    """The test classes of a run, which nothing may look at as long as anything is left to decide."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def open(self, trainer: Trainer) -> Dataset:
        """For the last look, when training is over and the weights are selected."""
        if not trainer.over:
            raise RuntimeError(
                f"the test classes stay sealed until training is over; it is at step {trainer.step_number} "
                f"of {trainer.steps}"
            )
        return self._dataset

    def open_for_oracle(self) -> Dataset:
        """For selection on the test classes: what is measured so is marked as inflated wherever it is shown."""
        return self._dataset


class RunBuilder:
    """One run on this rank, from its configuration (with every "auto" resolved in `given`).

    Args:
        given: The configuration.
        dataset: Instead of the one that the configuration names.
        ranks: This process among those that train together.
        resumed: Whether the weights come from a checkpoint, so that those the run started from need not be there.
    """

    def __init__(self, given: RunConfig, dataset: Dataset | None, ranks: World, resumed: bool = False) -> None:
        data = parts.load_dataset(given.data) if dataset is None else parts.assign_splits(dataset, given.data)
        self.config = given = parts.resolve_config(given, data)
        self._source = data
        self.ranks = ranks
        self.device = choose_device(given.training.device)
        self._resumed, start_known = resumed, True
        self.start: dict[str, Any] | None = None  # the weights of another run that this one starts from
        try:
            embedder, self.start = create_start(given)
        except (ValueError, OSError):
            if not resumed:
                raise
            # the checkpoint has weights of its own; those that the run began with are gone
            embedder, start_known = create_architecture(given), False
        self.pipeline: Pipeline | None = parts.build_pipeline(given.data, embedder)
        splits = parts.split_classes(parts.cache_in_memory(data, given.data, self.pipeline), given.data)
        self.train, self.validation = splits.train, splits.validation
        self.test = None if splits.test is None else HeldOutTest(splits.test)
        self._check_selection()
        self.model: Embedder = embedder.to(self.device)
        fit_start(
            self.model,
            given.model,
            lambda: self.embed(self.model, self.train, of=self.model.features),
            (self.start or {}).get("parts", ()),
        )
        if ranks.size > 1:
            models.synchronize_batch_norm(self.model)
        self.start_weights: dict[str, Tensor] | None = copy_weights(self.model) if start_known else None

    def check_data(self, folder: RunFolder, known: str | None) -> None:
        """Refuse to go on with a run on other data than it began with; `known` is what stood for that."""
        if known is not None and known != compute_fingerprint(self._source):
            raise ValueError(
                f"the data is not what {folder.path} began with: restore it, or begin a new run in another folder"
            )

    def describe(self) -> dict[str, Any]:
        """Where the run is made, and what stands for its data."""
        about = {**describe_environment(self.device), "data": compute_fingerprint(self._source)}
        return about if self.start is None else {**about, "start": self.start}

    def check_start(self, folder: RunFolder, known: Mapping[str, Any]) -> None:
        """Refuse to begin anew, before the first checkpoint, from other weights than the run began with."""
        if self.start is None or known.get("start", self.start)["sha256"] == self.start["sha256"]:
            return
        self.start_weights = None
        if not self._resumed:
            raise ValueError(
                f"{folder.path} began from other weights than those that {self.start['run']} has now: restore them, or "
                "begin a new run in another folder"
            )

    def embed(self, model: nn.Module, dataset: Dataset, **options: Any) -> Tensor:
        """(N, d) in evaluation mode, by all ranks."""
        training = self.config.training
        return compute_embeddings(
            model,
            dataset,
            self.pipeline,
            batch_size=self.config.evaluation.batch_size,
            device=self.device,
            precision=training.precision,
            workers=self.config.data.workers,
            ranks=self.ranks,
            **options,
        )

    def compute_metrics(self, model: nn.Module, dataset: Dataset, names: Sequence[str]) -> dict[str, float]:
        """Metrics of a data set, queries against their gallery where it tells them apart; NaN of a space that huge
        weights blew up."""
        rows = self.embed(model, dataset)
        if not rows.isfinite().all():
            return dict.fromkeys(names, float("nan"))
        return compute_metrics(rows, dataset, names, self.config.evaluation.distance)  # type: ignore[arg-type]

    def build_trainer(self, folder: RunFolder | None, callbacks: Sequence[Callback]) -> Trainer:
        given, train = self.config, self.train
        training, evaluation = given.training, given.evaluation
        objective = parts.build_objective(given, len(train.classes), self.model).to(self.device)
        if training.precision == "float64":
            objective.double()
        try_objective(objective, given.model.dim, self.device)
        if training.steps != 0 and int(train.class_sizes().max()) < 2 and not _has_proxies(objective):
            raise ValueError(
                f"every class has one item only, and {given.loss.name!r} learns from items of one class; give more "
                "items, or use a loss with class vectors such as 'proxy-anchor'"
            )
        sampler = parts.build_sampler(given, train.labels)
        batches = Batches(
            train,
            None if self.pipeline is None else self.pipeline.train,
            None if self.pipeline is None else self.pipeline.normalize,
            batch_sampler=sampler,
            seed=given.seed,
            workers=given.data.workers,
            mode="RGB" if self.pipeline is None else self.pipeline.mode,
            background=given.data.background,
        )
        step = Step(
            self.model,
            objective,
            seed=given.seed,
            device=self.device,
            precision=training.precision,
            micro_batch=training.micro_batch,
            mixing=given.mixup,
            ranks=self.ranks,
            scaler=torch.amp.GradScaler(self.device.type, enabled=training.precision == "float16"),
        )
        own: list[Callback] = []
        if folder is not None and self.ranks.is_first:
            own.append(JsonLines(folder.log, training.log_every))
            if training.tensorboard:
                own.append(create_tensorboard_logger(folder.path / "tensorboard", training.log_every))
        steps = (training.epochs or 0) * len(batches) if training.steps is None else training.steps
        least = max(given.schedule.warmup, math.ceil(evaluation.patience_after * steps))
        return Trainer(
            step,
            build_optimizer(self.model, objective, given.optimizer, idle=training.steps == 0),
            batches,
            sampler,
            steps=steps,
            schedule=given.schedule,
            selection=Selection(evaluation.selection, evaluation.metric, evaluation.patience, least),
            evaluate=self._evaluate(),
            embed=lambda model: self.embed(model, train),
            evaluate_every=evaluation.every,
            evaluated_split="test" if evaluation.selection == "test-oracle" else "validation",
            head_only=training.head_only,
            clip=given.optimizer.clip,
            folder=folder,
            save_seconds=training.save_seconds,
            save_every=training.save_every,
            callbacks=[*own, *callbacks],
        )

    def finish(self, trainer: Trainer, folder: RunFolder) -> None:
        """Take the selected weights, look at the test classes, for the first time and once, and write the scores."""
        given, selection = self.config, trainer.selection
        weights = trainer.selected()
        self.model.load_state_dict(weights)
        step = (
            selection.best_step
            if selection.rule == "validation" and selection.best is not None
            else trainer.step_number
        )
        scores: dict[str, Any] = {
            "selection": selection.rule,
            "inflated": selection.inflated,
            "step": step,
            # a run that was asked to train and ends with the weights it began with says nothing about its loss
            "selected_start": trainer.steps > 0 and selection.selected_step(trainer.step_number) == 0,
            "steps": trainer.steps if trainer.diverged is not None else trainer.step_number,
            "ended": _why(trainer),
            "diverged": trainer.diverged is not None,
        }
        names = given.evaluation.metrics if is_finite(weights) else []  # ruined weights give no space to measure
        if selection.rule == "validation" and selection.best is not None:
            scores["validation"] = {name: selection.best_values[name] for name in names}
        elif self.validation is not None:
            scores["validation"] = self.compute_metrics(self.model, self.validation, names)
        if selection.inflated:
            scores["test"] = {name: value for name, (value, _) in selection.oracle.items()}
            scores["test_steps"] = {name: int(when) for name, (_, when) in selection.oracle.items()}
        elif self.test is not None:
            scores["test"] = self.compute_metrics(self.model, self.test.open(trainer), names)
        # fewer classes are easier to tell apart: a score means something only beside their number
        test = None if self.test is None else self.test.open(trainer)
        seen = {"train": self.train, "validation": self.validation, "test": test}
        scores["classes"] = {name: len(part.classes) for name, part in seen.items() if part is not None}
        if given.evaluation.diagnose != "never" and is_finite(weights):
            scores["train_space"] = self.compute_metrics(self.model, self.train, given.evaluation.diagnostics)
        scores["start"] = self._start_scores(trainer, scores)
        if self.ranks.is_first:
            folder.finish(step, weights, nan_to_null(scores))
        self.ranks.barrier()

    def _start_scores(self, trainer: Trainer, scores: dict[str, Any]) -> dict[str, dict[str, float]]:
        """What the model scored before its first step, on the same classes; the model has these weights afterwards."""
        names, selection = self.config.evaluation.metrics, trainer.selection
        watched = "test" if selection.inflated else "validation"
        parts = {"validation": self.validation, "test": None if self.test is None else self.test.open(trainer)}
        if self.start_weights is not None:
            self.model.load_state_dict(self.start_weights)
        start = {}
        for split, dataset in parts.items():
            if split not in scores or dataset is None:
                continue
            if trainer.steps == 0:
                start[split] = scores[split]
            elif split == watched and selection.start_values is not None:
                start[split] = {name: selection.start_values[name] for name in names}
            elif self.start_weights is not None:
                start[split] = self.compute_metrics(self.model, dataset, names)
        return start

    def _evaluate(self) -> Evaluate | None:
        evaluation = self.config.evaluation
        watched = self.validation
        if evaluation.selection == "test-oracle" and self.test is not None:
            watched = self.test.open_for_oracle()
        always = evaluation.diagnose == "always"
        if watched is None and not always:
            return None

        def evaluate(model: nn.Module) -> dict[str, float]:
            values = {} if watched is None else self.compute_metrics(model, watched, evaluation.metrics)
            if always:
                space = self.compute_metrics(model, self.train, evaluation.diagnostics)
                values |= {f"train {name}": value for name, value in space.items()}
            return values

        return evaluate

    def _check_selection(self) -> None:
        for name in (*self.config.evaluation.metrics, *self.config.evaluation.diagnostics):
            find_metric(name)  # raises with the nearest name
        rule, patience = self.config.evaluation.selection, self.config.evaluation.patience
        if self.validation is None and (rule == "validation" or (patience is not None and rule == "last")):
            # all that needs validation classes at once, with all that is to be changed
            needs = ["evaluation.selection = 'validation'"] if rule == "validation" else []
            without = ["--set evaluation.selection=last"] if rule == "validation" else []
            if patience is not None:
                needs.append(f"evaluation.patience = {patience}")
                without.append("--set evaluation.patience=none")
            raise ValueError(
                f"data.validation = {self.config.data.validation:g} leaves no validation classes, which "
                f"{' and '.join(needs)} {'need' if len(needs) > 1 else 'needs'}: hold out a share of the training "
                f"classes with --set data.validation=0.2, or do without: {' '.join(without)}"
            )
        if rule == "validation" and self.validation is not None and int(self.validation.class_sizes().max()) < 2:
            raise ValueError(
                "no class that was held out has two items to find each other; raise validation, or set it to 0"
            )
        if rule == "test-oracle" and self.test is None:
            raise ValueError("evaluation.selection = 'test-oracle' needs test classes, and this data has none")


def _has_proxies(objective: Objective) -> bool:
    return not isinstance(objective.loss, Mined) and objective.loss.proxies is not None


def compute_metrics(embeddings: Tensor, dataset: Dataset, names: Sequence[str], distance: Distance) -> dict[str, float]:
    """Metrics of embeddings of a data set, queries against their gallery where it tells them apart."""
    coarse = dataset.coarse if uses_coarse_labels(names) else None
    options: dict[str, Any] = {"metrics": names, "distance": distance}
    if dataset.role is None or not (dataset.role == "query").any():
        return metrics.evaluate(embeddings, dataset.labels, coarse_labels=coarse, **options)
    query, gallery = (torch.from_numpy(dataset.role == role) for role in ("query", "gallery"))
    if not uses_gallery(names):
        coarse = None if coarse is None else coarse[query]
        return metrics.evaluate(embeddings[query], dataset.labels[query], coarse_labels=coarse, **options)
    return metrics.evaluate(
        embeddings[query],
        dataset.labels[query],
        embeddings[gallery],
        dataset.labels[gallery],
        coarse_labels=None if coarse is None else coarse[query],
        **options,
    )


def _why(trainer: Trainer) -> str:
    if trainer.diverged is not None:
        return f"the loss or the weights were not finite at step {trainer.diverged}"
    early = trainer.selection.exhausted and trainer.step_number < trainer.steps
    return "no better value for too long" if early else "all steps done"
