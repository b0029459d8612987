"""What a worker of a bench is given, what it does with it, and what it answers."""

import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from kinfold.data import Dataset, load
from kinfold.experiments.repeat import Repeat
from kinfold.files.locks import FolderLockedError
from kinfold.training import Event, Run, Stopped, configure, train
from kinfold.training.config import resolution
from kinfold.training.run_folder import RunFolder

PATIENCE = 10.0  # seconds to wait for a folder that a worker of a killed bench may still hold
Tell = Callable[[str, float], object]


@dataclass(frozen=True)
class Task:
    """name: unique in the bench, and its folder below that of the bench. train: make a run. test: open the test classes
    of a repeat whose folds are all trained."""

    kind: Literal["train", "test"]
    name: str
    folder: Path
    tables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskResult:
    """How a task ended.

    Attributes:
        error: What went wrong; None where the task is done.
        stopped: It was asked to stop and saved its state, which is no error.
        details: The traceback of an error.
        lost: Its process was ended by a signal or hung. This says nothing about the task, which may be tried again.
    """

    name: str
    seconds: float
    error: str | None = None
    stopped: bool = False
    details: str = ""
    lost: bool = False

    @property
    def done(self) -> bool:
        return self.error is None and not self.stopped


def run_task(task: Task, tell: Tell | None = None) -> TaskResult:
    """Do it; whatever goes wrong is an outcome, so that the other tasks go on."""
    start = time.monotonic()
    try:
        _perform(task, tell)
    except Stopped:
        return TaskResult(task.name, time.monotonic() - start, stopped=True)
    except Exception as wrong:
        if _of_memory(wrong):
            return _failed(task, start, "out of memory: take smaller batches, or run fewer cells at a time (--jobs)")
        known = isinstance(wrong, ValueError | OSError | ImportError)  # messages that say how to mend it
        return _failed(task, start, str(wrong) if known else f"{type(wrong).__name__}: {wrong}")
    return TaskResult(task.name, time.monotonic() - start)


def _perform(task: Task, tell: Tell | None) -> None:
    if task.kind == "test":
        settings = Run.open(task.folder / "fold-0").config.data
        repeat = Repeat.open(task.folder, _loaded(settings.name, settings.root, json.dumps(settings.options)))
        if not repeat.tested:
            repeat.test()
        return
    given = configure(task.tables)
    dataset = _loaded(given.data.name, given.data.root, json.dumps(given.data.options))
    place = RunFolder(task.folder)

    def report(event: Event) -> None:
        if tell is not None and event.steps:
            tell(task.name, event.step / event.steps)

    waited = time.monotonic() + PATIENCE
    while True:
        try:
            if not place.begun:
                train(given, task.folder, dataset=dataset, callbacks=[report])
            else:
                before = Run.open(task.folder).config
                if resolution.resolve_config(given, dataset) != before:
                    raise ValueError(
                        f"{task.folder} was begun with other settings than the suite has now; "
                        "choose another folder for the bench, or move that one away"
                    )
                train(folder=task.folder, resume=True, dataset=dataset, callbacks=[report])
            return
        except FolderLockedError:
            if time.monotonic() > waited:
                raise
            time.sleep(0.2)


@lru_cache(maxsize=2)
def _loaded(name: str, root: str | None, options: str) -> Dataset:
    """Many cells learn from the same data: it is read once for all that a worker makes."""
    return load(name, root, **json.loads(options))


def _of_memory(wrong: Exception) -> bool:
    """torch has an error of its own for GPUs, and a plain one for the memory of the machine."""
    return isinstance(wrong, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(wrong)


def _failed(task: Task, start: float, error: str) -> TaskResult:
    return TaskResult(task.name, time.monotonic() - start, error, details=traceback.format_exc())
