"""The training loop: steps, evaluations, checkpoints and requests to stop."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer as TorchOptimizer

from kinfold.data import Batch, Batches
from kinfold.devices import keep_global_generators
from kinfold.distributed import World
from kinfold.samplers import Sampler
from kinfold.training.config.settings import ScheduleConfig
from kinfold.training.loop.objective import Objective
from kinfold.training.loop.optimizers import (
    compute_lr_factor,
    load_optimizer_state,
    save_optimizer_state,
    set_learning_rates,
)
from kinfold.training.loop.selection import Selection
from kinfold.training.loop.signals import Stopped, StopRequest
from kinfold.training.loop.step import Step, StepOutput
from kinfold.training.loop.training_set_state import is_training_set_state
from kinfold.training.run_folder import RunFolder

_WORKER_ERRORS = (RuntimeError, OSError, EOFError)  # raised by reading from worker processes that have ended


@dataclass(frozen=True)
class Event:
    """What callbacks are called with.

    Attributes:
        kind: "estimate" (before the first step: seconds of a step and of the run, and shares of the time of a step by
            faster setting), "step", "evaluation", "saved" (a checkpoint) or "end".
        step: Steps so far.
        steps: Steps of the whole training.
        values: Loss, learning rates or metrics by name.
        split: The split of an evaluation.
    """

    kind: Literal["estimate", "step", "evaluation", "saved", "end"]
    step: int
    steps: int
    values: dict[str, float] = field(default_factory=dict)
    split: str | None = None


Callback = Callable[[Event], object]
Evaluate = Callable[[nn.Module], dict[str, float]]


@dataclass
class Trainer:
    """Trains the model of `step` on batches. Everything that changes meanwhile is in `state_dict`.

    Args:
        step: Computes the gradients of a batch.
        optimizer: Updates model and loss.
        batches: The training batches of this process.
        sampler: The sampler of `batches`.
        steps: Steps to train.
        schedule: The learning rate schedule.
        selection: Which weights to end with, and when to stop early.
        evaluate: Returns the metrics of the model that selection follows. Called before the first step, every
            `evaluate_every` steps and after the last.
        embed: Returns the embeddings (N, d) of all training items, for samplers that need them.
        evaluate_every: Steps between two evaluations.
        evaluated_split: The split of `evaluate`, for the log.
        head_only: First steps, in which the backbone is not trained.
        clip: Largest norm of the network's gradient.
        folder: Where checkpoints are saved; without one nothing is written.
        save_seconds: Seconds between two checkpoints.
        save_every: Steps between two checkpoints.
        callbacks: Called on the first process with every event. The state of those with a `state_dict` is saved too.
        step_number: Steps so far.
        diverged: The step at which the loss or the weights were no longer finite.
        judged: Whether the model was evaluated before the first step.
    """

    step: Step
    optimizer: TorchOptimizer
    batches: Batches
    sampler: Sampler
    steps: int
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    selection: Selection = field(default_factory=lambda: Selection("last", "map@r"))
    evaluate: Evaluate | None = None
    embed: Callable[[nn.Module], Tensor] | None = None
    evaluate_every: int = 200
    evaluated_split: str = "validation"
    head_only: int = 0
    clip: float | None = None
    folder: RunFolder | None = None
    save_seconds: float = 60.0
    save_every: int | None = None
    callbacks: Sequence[Callback] = ()
    step_number: int = 0
    diverged: int | None = None
    judged: bool = False
    _best: dict[str, Tensor] | None = None  # weights

    def __post_init__(self) -> None:
        self.stop = StopRequest()
        self._saved_at = time.monotonic()
        self._saved_step = self.step_number

    @property
    def model(self) -> nn.Module:
        """The network."""
        return self.step.model

    @property
    def objective(self) -> Objective:
        """What is minimized."""
        return self.step.objective

    @property
    def world(self) -> World:
        """The processes that train together."""
        return self.step.world

    @property
    def over(self) -> bool:
        """Whether there is no step left."""
        return self.step_number >= self.steps or self.selection.exhausted or self.diverged is not None

    def fit(self) -> None:
        """Train to the end.

        Raises:
            Stopped: A signal asked for it; everything is saved.
        """
        with keep_global_generators(self.step.device), self.stop.listen():
            if not self.judged:
                self._evaluate()
                self.judged = True
            while not self.over:
                self._train_epoch()
            stop = max(signal for (signal,) in self.world.gather_integers([self.stop.signal]))
            self._save()
            if stop:  # it came in the last step
                raise Stopped(stop, self.step_number)
            self.call_back(Event("end", self.step_number, self.steps))

    def get_selected_weights(self) -> dict[str, Tensor]:
        """Return the weights that the run ends with."""
        return copy_weights(self.model) if self._best is None else self._best

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed training needs; with sharded classes, called on all processes."""
        return {
            "done": self.step_number,
            "diverged": self.diverged,
            "judged": self.judged,
            "model": copy_weights(self.model),
            "objective": self.objective.state_dict(),
            "optimizer": save_optimizer_state(self.optimizer),
            "scaler": self.step.scaler.state_dict(),
            "sampler": self.sampler.state_dict(),
            "selection": self.selection.state_dict(),
            # in the checkpoint too, so that a newer or damaged best.safetensors cannot change a resumed run
            "best": self._best,
            "callbacks": [callback.state_dict() for callback in self._list_stateful_callbacks()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.step_number, self.diverged, self.judged = state["done"], state["diverged"], state["judged"]
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.step.scaler.load_state_dict(state["scaler"])
        self.sampler.load_state_dict(state["sampler"])
        self.selection.load_state_dict(state["selection"])
        self._best = state["best"]
        for callback, callback_state in zip(self._list_stateful_callbacks(), state["callbacks"], strict=False):
            callback.load_state_dict(callback_state)
        self._saved_step = self.step_number

    def _list_stateful_callbacks(self) -> list[Any]:
        return [callback for callback in self.callbacks if hasattr(callback, "state_dict")]

    def _train_epoch(self) -> None:
        """Train the rest of the epoch that the next step belongs to."""
        if not self.sampler.ready:
            assert self.embed is not None, "a sampler that needs embeddings needs embed="
            embeddings = self.embed(self.model)
            self.sampler.update(torch.arange(embeddings.shape[0]), embeddings)
        epoch, start = divmod(self.step_number, len(self.batches))
        if start == 0:
            self._update_training_set_states(epoch)
        self.batches.set_epoch(epoch, start)
        self.model.train()
        for batch in self._read_batches():
            stop, save, sizes = self._agree(0 if batch is None else batch.labels.shape[0])
            if save or stop:
                self._save()
            if stop or batch is None:
                raise Stopped(stop, self.step_number)
            output = self._update(batch, sizes)
            if output is None:
                return
            if self.sampler.needs_embeddings:
                self.sampler.update(output.indices, output.embeddings)
            self.step_number += 1
            rates = {f"lr-{group['name']}": group["lr"] for group in self.optimizer.param_groups}
            values = {"loss": output.loss, **output.logged, **rates}
            self.call_back(Event("step", self.step_number, self.steps, values))
            if self.step_number % self.evaluate_every == 0 or self.step_number == self.steps:
                self._evaluate()
                self.model.train()
            if self.over:
                return

    def _update_training_set_states(self, epoch: int) -> None:
        """Show the embeddings of all training items to those parts of the objective that depend on them."""
        due = [module for module in self.objective.modules() if is_training_set_state(module) and module.is_due(epoch)]
        if due:
            assert self.embed is not None, "a method that depends on the whole training set needs embed="
            embeddings, labels = self.embed(self.model), self.batches.dataset.labels
            for module in due:
                module.update(embeddings, labels, self.step.seed + epoch)

    def _read_batches(self) -> Iterator[Batch | None]:
        """Yield the batches, and None at the end where the signal to stop ended the reading workers too."""
        batches = iter(self.batches)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except _WORKER_ERRORS:
                if not self.stop.signal:
                    raise
                yield None
                return
            yield batch

    def _update(self, batch: Batch, sizes: list[int] | None) -> StepOutput | None:
        """Take one step; None, without an update, where the loss is not finite."""
        self.optimizer.zero_grad()
        set_learning_rates(self.optimizer, compute_lr_factor(self.schedule, self.step_number, self.steps))
        output = self.step(batch, self.step_number, sizes)
        if not math.isfinite(output.loss):
            self.diverged = self.step_number
            self.call_back(Event("step", self.step_number, self.steps, {"loss": output.loss}))
            return None
        scaler = self.step.scaler
        if self.step_number < self.head_only:
            for group in self.optimizer.param_groups:
                if group["name"].startswith("backbone"):
                    for parameter in group["params"]:
                        parameter.grad = None
        if self.clip is not None:
            scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        scaler.step(self.optimizer)
        scaler.update()
        return output

    def _evaluate(self) -> None:
        """Evaluate the model, and keep its weights where they are the best so far."""
        if self.evaluate is None:
            return
        if not is_finite(self.model.state_dict()):
            self.diverged = self.step_number
            return
        try:
            values = self.evaluate(self.model)
        except _WORKER_ERRORS:
            if not self.stop.signal:
                raise
            # the signal ended its workers too; the last checkpoint is older than this evaluation
            raise Stopped(self.stop.signal, self._saved_step) from None
        self.call_back(Event("evaluation", self.step_number, self.steps, values, self.evaluated_split))
        if self.selection.update(self.step_number, values) and self.selection.rule == "validation":
            self._best = copy_weights(self.model)
            if self.folder is not None and self.world.is_first:
                self.folder.save_best(self.step_number, self._best)

    def _agree(self, size: int) -> tuple[int, bool, list[int] | None]:
        """Return whether to stop, whether to save, and the batch size of every process; the same on all processes."""
        waited = time.monotonic() - self._saved_at >= self.save_seconds
        counted = self.save_every is not None and self.step_number % self.save_every == 0
        save = self.folder is not None and self.step_number > self._saved_step and (waited or counted)
        if self.world.size == 1:
            return self.stop.signal, save, None
        answers = self.world.gather_integers([size, self.stop.signal, int(save)])
        sizes, signals, saves = ([*column] for column in zip(*answers, strict=True))
        return max(signals), any(saves), sizes

    def _save(self) -> None:
        self._saved_at, self._saved_step = time.monotonic(), self.step_number
        if self.folder is None:
            return
        # class vectors that are sharded come from all processes
        is_sharded = any(hasattr(parameter, "class_shard") for parameter in self.objective.parameters())
        state = self.state_dict() if self.world.is_first or is_sharded else {}
        if self.world.is_first:
            log = self.folder.log
            length = log.stat().st_size if log.exists() else 0
            self.folder.save(self.step_number, {**state, "log": length})
        self.call_back(Event("saved", self.step_number, self.steps))
        self.world.barrier()

    def call_back(self, event: Event) -> None:
        """Call all callbacks with an event, on the first process."""
        if self.world.is_first:
            for callback in self.callbacks:
                callback(event)


def is_finite(weights: dict[str, Tensor]) -> bool:
    """Return whether all weights are finite."""
    return all(bool(value.isfinite().all()) for value in weights.values())


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights to the CPU, where later steps do not change them, in contiguous order."""
    contiguous = torch.contiguous_format
    return {name: value.detach().cpu().clone(memory_format=contiguous) for name, value in model.state_dict().items()}
