"""A task of a bench, what a worker does with it, and how it ended."""

import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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

LOCK_TIMEOUT = 10.0  # seconds to wait for a folder that a worker of a killed bench may still hold
Progress = Callable[[str, float], object]  # name of a task, fraction of it that is complete


@dataclass(frozen=True)
class Task:
    """One unit of work.

    Attributes:
        kind: "train" trains a run; "test" measures the test classes for a repeat whose folds are all trained.
        name: Unique in the bench: its folder, relative to that of the bench.
        folder: The same folder as a path.
        tables: The recipe of a run.
    """

    kind: Literal["train", "test"]
    name: str
    folder: Path
    tables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskResult:
    """How a task ended.

    Attributes:
        name: Name of the task.
        seconds: How long it took.
        error: Error message; None where the task succeeded or was stopped.
        stopped: The task was asked to stop and saved its state, which is not an error.
        details: Traceback of an error.
        lost: Its process was killed by a signal or hung. The task itself may be fine, and can be tried again.
    """

    name: str
    seconds: float
    error: str | None = None
    stopped: bool = False
    details: str = ""
    lost: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the task ended without an error."""
        return self.error is None and not self.stopped


def run_task(task: Task, progress: Progress | None = None) -> TaskResult:
    """Run a task. An error is returned as its result, so that other tasks continue."""
    start = time.monotonic()
    try:
        if task.kind == "test":
            _test_repeat(task)
        else:
            _train_run(task, progress)
    except Stopped:
        return TaskResult(task.name, time.monotonic() - start, stopped=True)
    except Exception as error:
        if _is_out_of_memory(error):
            message = "out of memory: use smaller batches, or fewer runs at a time (--jobs)"
        elif isinstance(error, ValueError | OSError | ImportError):  # their messages say what to do
            message = str(error)
        else:
            message = f"{type(error).__name__}: {error}"
        return TaskResult(task.name, time.monotonic() - start, message, details=traceback.format_exc())
    return TaskResult(task.name, time.monotonic() - start)


def _test_repeat(task: Task) -> None:
    settings = Run.open(task.folder / "fold-0").config.data
    repeat = Repeat.open(task.folder, _load_dataset(settings.name, settings.root, json.dumps(settings.options)))
    if not repeat.tested:
        repeat.test()


def _train_run(task: Task, progress: Progress | None) -> None:
    config = configure(task.tables)
    dataset = _load_dataset(config.data.name, config.data.root, json.dumps(config.data.options))

    def report(event: Event) -> None:
        if progress is not None and event.steps:
            progress(task.name, event.step / event.steps)

    give_up_at = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            if not RunFolder(task.folder).begun:
                train(config, task.folder, dataset=dataset, callbacks=[report])
            else:
                started = Run.open(task.folder).config
                expected = resolution.resolve_config(config, dataset)
                if expected.model.memory_format == "auto":  # which a run replaces by what was faster
                    model = replace(expected.model, memory_format=started.model.memory_format)
                    expected = replace(expected, model=model)
                if expected != started:
                    raise ValueError(
                        f"{task.folder} was started with other settings than the suite has now; "
                        "choose another folder for the bench, or move that one away"
                    )
                train(folder=task.folder, resume=True, dataset=dataset, callbacks=[report])
            return
        except FolderLockedError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.2)


@lru_cache(maxsize=2)
def _load_dataset(name: str, root: str | None, options: str) -> Dataset:
    """Load a data set once for all runs of a worker that use it."""
    return load(name, root, **json.loads(options))


def _is_out_of_memory(error: Exception) -> bool:
    """torch has its own error for the memory of GPUs, and a plain RuntimeError for that of the machine."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
