"""The training loop: steps, evaluations, checkpoints and requests to stop, in one readable place."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer as TorchOptimizer

from kinfold.data import Batch, Batches
from kinfold.distributed import World
from kinfold.samplers import Sampler
from kinfold.training.config.settings import ScheduleConfig
from kinfold.training.folder import RunFolder
from kinfold.training.objective import Objective
from kinfold.training.optimizers import set_rates
from kinfold.training.schedules import compute_factor
from kinfold.training.selection import Selection
from kinfold.training.signals import Stopped, StopRequest
from kinfold.training.step import Step, StepOutput

ENDED_WORKERS = (RuntimeError, OSError, EOFError)  # what reading from worker processes raises when they are gone


@dataclass(frozen=True)
class Event:
    """What callbacks are told: a training step, an evaluation, a checkpoint, or the end."""

    kind: Literal["step", "evaluation", "saved", "end"]
    step: int
    steps: int
    values: dict[str, float] = field(default_factory=dict)
    split: str | None = None  # of an evaluation


Callback = Callable[[Event], object]
Evaluate = Callable[[nn.Module], dict[str, float]]


@dataclass
class Trainer:
    """Trains `model` on `batches`; everything that changes meanwhile is in `state_dict`.

    evaluate: gives the metrics of the model on the classes that selection looks at; called at the start, every
    `evaluate_every` steps and at the end. embed: gives the embeddings (N, d) of all training items, for samplers that
    need them. folder: where checkpoints go; without one nothing is written. Callbacks are called on the first rank,
    with every event; what those with a `state_dict` remember is saved and restored too.
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
    step_number: int = 0  # steps so far
    diverged: int | None = None  # the step at which the loss or the weights were not finite any more
    judged: bool = False  # whether the model was evaluated before the first step
    _best: dict[str, Tensor] | None = None  # weights

    def __post_init__(self) -> None:
        self.stop = StopRequest()
        self._saved_at = time.monotonic()
        self._saved_step = self.step_number

    @property
    def model(self) -> nn.Module:
        return self.step.model

    @property
    def objective(self) -> Objective:
        return self.step.objective

    @property
    def ranks(self) -> World:
        return self.step.ranks

    def fit(self) -> None:
        """Train to the end; `Stopped` where a signal asked for it, after saving."""
        device = [self.step.device] if self.step.device.type == "cuda" else []
        with torch.random.fork_rng(devices=device), self.stop.listening():
            if not self.judged:
                self._judge()
                self.judged = True
            while not self.over:
                self._epoch()
            stop = max(signal for (signal,) in self.ranks.gather_integers([self.stop.signal]))
            self._save()
            if stop:  # it came in the last step
                raise Stopped(stop, self.step_number)
            self._tell(Event("end", self.step_number, self.steps))

    def selected(self) -> dict[str, Tensor]:
        """The weights that the run ends with."""
        return copy_weights(self.model) if self._best is None else self._best

    def state_dict(self) -> dict[str, Any]:
        return {
            "done": self.step_number,
            "diverged": self.diverged,
            "judged": self.judged,
            "model": copy_weights(self.model),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.step.scaler.state_dict(),
            "sampler": self.sampler.state_dict(),
            "selection": self.selection.state_dict(),
            # with the rest, so that a newer or a damaged best.safetensors cannot change how a resumed run ends
            "best": self._best,
            "callbacks": [callback.state_dict() for callback in self._remembering()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step_number, self.diverged, self.judged = state["done"], state["diverged"], state["judged"]
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step.scaler.load_state_dict(state["scaler"])
        self.sampler.load_state_dict(state["sampler"])
        self.selection.load_state_dict(state["selection"])
        self._best = state["best"]
        for callback, remembered in zip(self._remembering(), state["callbacks"], strict=False):
            callback.load_state_dict(remembered)
        self._saved_step = self.step_number

    def _remembering(self) -> list[Any]:
        return [callback for callback in self.callbacks if hasattr(callback, "state_dict")]

    @property
    def over(self) -> bool:
        """Whether there is no step left to take."""
        return self.step_number >= self.steps or self.selection.exhausted or self.diverged is not None

    def _epoch(self) -> None:
        """The rest of the epoch that the next step belongs to."""
        if not self.sampler.ready:
            assert self.embed is not None, "a sampler that needs embeddings needs embed="
            everything = self.embed(self.model)
            self.sampler.update(torch.arange(everything.shape[0]), everything)
        epoch, start = divmod(self.step_number, len(self.batches))
        self.batches.set_epoch(epoch, start)
        self.model.train()
        for batch in self._read():
            stop, save, sizes = self._agree(0 if batch is None else batch.labels.shape[0])
            if save or stop:
                self._save()
            if stop or batch is None:
                raise Stopped(stop, self.step_number)
            finished = self._step(batch, sizes)
            if finished is None:
                return
            if self.sampler.needs_embeddings:
                self.sampler.update(finished.indices, finished.embeddings)
            self.step_number += 1
            rates = {f"lr-{group['name']}": group["lr"] for group in self.optimizer.param_groups}
            self._tell(Event("step", self.step_number, self.steps, {"loss": finished.loss, **finished.logged, **rates}))
            if self.step_number % self.evaluate_every == 0 or self.step_number == self.steps:
                self._judge()
                self.model.train()
            if self.over:
                return

    def _read(self) -> Iterator[Batch | None]:
        """The batches; None where there will be no more because what asks for a stop ended the workers too."""
        batches = iter(self.batches)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except ENDED_WORKERS:
                if not self.stop.signal:
                    raise
                yield None
                return
            yield batch

    def _step(self, batch: Batch, sizes: list[int] | None) -> StepOutput | None:
        """One update; None, and no update, where the loss is not finite."""
        self.optimizer.zero_grad()
        set_rates(self.optimizer, compute_factor(self.schedule, self.step_number, self.steps))
        finished = self.step(batch, self.step_number, sizes)
        if not math.isfinite(finished.loss):
            self.diverged = self.step_number
            self._tell(Event("step", self.step_number, self.steps, {"loss": finished.loss}))
            return None
        scaler = self.step.scaler
        if self.step_number < self.head_only:
            for group in self.optimizer.param_groups:
                if group["name"] == "backbone":
                    for parameter in group["params"]:
                        parameter.grad = None
        if self.clip is not None:
            scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        scaler.step(self.optimizer)
        scaler.update()
        return finished

    def _judge(self) -> None:
        """Evaluate, and keep the weights where they are the best so far."""
        if self.evaluate is None:
            return
        if not is_finite(self.model.state_dict()):
            self.diverged = self.step_number
            return
        try:
            values = self.evaluate(self.model)
        except ENDED_WORKERS:
            if not self.stop.signal:
                raise
            # its workers were ended too; the last checkpoint comes before this evaluation
            raise Stopped(self.stop.signal, self._saved_step) from None
        self._tell(Event("evaluation", self.step_number, self.steps, values, self.evaluated_split))
        if self.selection.judge(self.step_number, values) and self.selection.rule == "validation":
            self._best = copy_weights(self.model)
            if self.folder is not None and self.ranks.is_first:
                self.folder.keep_best(self.step_number, self._best)

    def _agree(self, size: int) -> tuple[int, bool, list[int] | None]:
        """Stop? Save? And how many items has each rank? Ranks must answer alike, so they ask each other."""
        waited = time.monotonic() - self._saved_at >= self.save_seconds
        counted = self.save_every is not None and self.step_number % self.save_every == 0
        save = self.folder is not None and self.step_number > self._saved_step and (waited or counted)
        if self.ranks.size == 1:
            return self.stop.signal, save, None
        answers = self.ranks.gather_integers([size, self.stop.signal, int(save)])
        sizes, signals, saves = ([*column] for column in zip(*answers, strict=True))
        return max(signals), any(saves), sizes

    def _save(self) -> None:
        self._saved_at, self._saved_step = time.monotonic(), self.step_number
        if self.folder is None:
            return
        if self.ranks.is_first:
            log = self.folder.log
            length = log.stat().st_size if log.exists() else 0
            self.folder.save(self.step_number, {**self.state_dict(), "log": length})
        self._tell(Event("saved", self.step_number, self.steps))
        self.ranks.barrier()

    def _tell(self, event: Event) -> None:
        if self.ranks.is_first:
            for callback in self.callbacks:
                callback(event)


def is_finite(weights: dict[str, Tensor]) -> bool:
    return all(bool(value.isfinite().all()) for value in weights.values())


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights to the CPU, where later steps do not change them."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
