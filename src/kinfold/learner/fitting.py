"""From rows and their classes to a trained head, by the same loop that trains networks."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinfold import models
from kinfold.data import Dataset, Rows, create_dataset
from kinfold.distributed import World
from kinfold.models import Embedder
from kinfold.models.initialization import principal_components
from kinfold.models.precomputed import PrecomputedFeatures
from kinfold.training import parts
from kinfold.training.builder import RunBuilder
from kinfold.training.config.settings import NamedConfig, RunConfig
from kinfold.training.loop import Callback, Event, Trainer
from kinfold.training.signals import Stopped

Array = np.ndarray[Any, Any]


@dataclass
class History:
    """The loss of every step and, by step, the metric on held-out classes; a callback of the loop."""

    metric: str
    losses: list[float] = field(default_factory=list)
    scores: dict[int, float] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        if event.kind == "step":
            self.losses.append(event.values["loss"])
        elif event.kind == "evaluation":
            self.scores[event.step] = event.values[self.metric]


@dataclass(frozen=True)
class Fitted:
    """A network that takes rows as they were given, how its embeddings are compared, and how it came about."""

    model: Embedder
    distance: str
    history: History
    steps: int
    best_step: int


def fit(
    rows: Array, labels: Array, given: RunConfig, callbacks: Sequence[Callback] = (), *, own_loss_lr: bool = False
) -> Fitted:
    """rows: float32 (N, d); labels: (N,), integers. What the configuration asks for is fitted to their shape.

    own_loss_lr: the user chose the learning rate of the loss, which must have a parameter then.
    """
    if (rows == rows[0]).all():
        raise ValueError("all rows of X are equal: there is nothing to tell classes apart by")
    data = create_dataset("X", Rows(rows), labels, np.full(len(labels), "train"))
    splits = parts.split_classes(data, given.data)
    sizes = splits.train.class_sizes().tolist()
    model, init = given.model, given.model.init
    components = None
    if init != "random":
        points = PrecomputedFeatures(rows.shape[1], standardize=True).standardize(_tensor(splits.train))
        components = principal_components(points)
        model = replace(model, dim=min(model.dim, max(1, components.rank)))
    batch_size, per_class = batch_shape(sizes, **given.sampler.options)
    sampler = NamedConfig("spc", {"batch_size": batch_size, "per_class": per_class})
    work = RunBuilder(replace(given, model=replace(model, init="random"), sampler=sampler), data, World.current())
    if components is not None:
        models.initialize(work.model.head, components, init, model.init_length)  # type: ignore[arg-type]
    history = History(given.evaluation.metric)
    trainer = work.build_trainer(None, [history, *callbacks])
    if own_loss_lr and not any(parameter.requires_grad for parameter in trainer.objective.parameters()):
        raise ValueError(
            f"loss_lr is for parameters of the loss, and {given.loss.name!r} has none to train: leave loss_lr out"
        )
    _run(trainer)
    embedder = work.model
    embedder.load_state_dict(trainer.selected())
    _check_finite(trainer, embedder, given.optimizer.lr)
    assert isinstance(embedder.backbone, PrecomputedFeatures)
    embedder.backbone.fold_into(embedder.head)  # what is left takes X as it is
    best = trainer.selection.best_step if trainer.selection.best is not None else trainer.step_number
    return Fitted(embedder.cpu().eval(), work.config.evaluation.distance, history, trainer.step_number, best)


def batch_shape(sizes: Sequence[int], batch_size: int, per_class: int) -> tuple[int, int]:
    """Items in a batch and items of each class in it, for classes of these sizes; never more than asked for.

    `per_class` items, or as many as the largest class has, of each of batch_size // per_class classes. Where there are
    not so many classes, each gives more, until the batch is full or the smallest class has no more to give.

    >>> batch_shape([60] * 100, batch_size=80, per_class=5)
    (80, 5)
    >>> batch_shape([60] * 4, batch_size=80, per_class=5), batch_shape([7, 9], batch_size=80, per_class=5)
    ((80, 20), (14, 7))
    >>> batch_shape([3, 1, 1], batch_size=80, per_class=5)
    (9, 3)
    """
    each = min(per_class, max(sizes))
    classes = min(batch_size // each, len(sizes))
    if classes == len(sizes):
        each = max(each, min(batch_size // classes, min(sizes)))
    return classes * each, each


def _tensor(dataset: Dataset) -> Tensor:
    rows: Array = dataset.items.array()  # type: ignore[attr-defined]  # `Rows`
    return torch.from_numpy(np.require(rows, requirements=["C", "W"]))


def _run(trainer: Trainer) -> None:
    try:
        trainer.fit()
    except Stopped as stopped:
        # nothing was saved to go on with: the signal does what it would have done to any other fit
        signal.raise_signal(stopped.signal)
        raise


def _check_finite(trainer: Trainer, model: nn.Module, lr: float) -> None:
    if trainer.diverged is not None:
        raise ValueError(f"the loss was not finite at step {trainer.diverged}; lower lr, which is {lr:g}")
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise ValueError(f"the weights were not finite in the end; lower lr, which is {lr:g}")
