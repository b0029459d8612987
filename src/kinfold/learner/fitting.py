"""From rows and their classes to a trained head, by the same loop that trains networks."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinfold import models
from kinfold.data import Rows, make
from kinfold.models import Embedder
from kinfold.models.initialization import principal_components
from kinfold.pairs import Ranks
from kinfold.training import parts
from kinfold.training.configuration import Choice, Configuration
from kinfold.training.loop import Callback, Event, Trainer
from kinfold.training.signals import Stopped
from kinfold.training.work import Work

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


def fit(rows: Array, labels: Array, given: Configuration, callbacks: Sequence[Callback] = ()) -> Fitted:
    """rows: float32 (N, d); labels: (N,), integers. What the configuration asks for is fitted to their shape."""
    # centred and of length one in the mean, so that no learning rate depends on the unit of X
    points, mean, scale = standardized(rows)
    data = make("X", Rows(points), labels, np.full(len(labels), "train"))
    splits = parts.split(data, given.data)
    sizes = splits.train.class_sizes().tolist()
    model, init = given.model, given.model.init
    components = None
    if init != "random":
        components = principal_components(torch.from_numpy(splits.train.items.array()))  # type: ignore[attr-defined]
        model = replace(model, dim=min(model.dim, max(1, components.rank)))
    batch_size, per_class = batch_shape(sizes, **given.sampler.options)
    sampler = Choice("spc", {"batch_size": batch_size, "per_class": per_class})
    work = Work(replace(given, model=replace(model, init="random"), sampler=sampler), data, Ranks.current())
    if components is not None:
        models.initialize(work.model.head, components, init)  # type: ignore[arg-type]  # "auto" is resolved
    history = History(given.evaluation.metric)
    trainer = work.trainer(None, [history, *callbacks])
    _run(trainer)
    embedder = work.model
    embedder.load_state_dict(trainer.selected())
    _check_finite(trainer, embedder, given.optimizer.lr)
    unstandardized(embedder.head, mean, scale)
    best = trainer.selection.best_step if trainer.selection.best is not None else trainer.done
    return Fitted(embedder.cpu().eval(), work.given.evaluation.distance, history, trainer.done, best)


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


def standardized(rows: Array) -> tuple[Array, Array, float]:
    """(x - mean) / scale in float32, with the mean (d,) of the rows and the root mean square distance from it."""
    mean: Array = rows.mean(axis=0, dtype=np.float64)
    points = rows - mean.astype(np.float32)
    scale = float(np.sqrt(np.einsum("ij,ij->", points, points, dtype=np.float64) / len(points)))
    if scale == 0:
        raise ValueError("all rows of X are equal: there is nothing to tell classes apart by")
    points *= np.float32(1 / scale)
    return points, mean, scale


def unstandardized(head: nn.Module, mean: Array, scale: float) -> None:
    """Let a head that was trained on (x - mean) / scale take x itself."""
    first = next(module for module in head.modules() if isinstance(module, nn.Linear))
    with torch.no_grad():
        weight: Tensor = first.weight.double() / scale
        first.bias.copy_(first.bias.double() - weight @ torch.from_numpy(mean).to(weight.device))
        first.weight.copy_(weight)


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
