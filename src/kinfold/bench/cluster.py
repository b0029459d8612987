"""Workers on a Ray cluster: every cell is a task of Ray, made wherever a core is free.

The folder of the bench and the data must lie on a file system that all nodes see under the same path, and kinfold must
be installed on all of them.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from kinfold import registry
from kinfold.bench.processes import Progress
from kinfold.bench.tasks import Outcome, Task
from kinfold.optional import needed

LOCAL = "local"


class Cluster:
    """The cluster at `address`, with `threads` cores for each task.

    "local" starts Ray on this machine for `jobs` tasks at a time, and ends it at the close; "auto" joins the cluster
    that this machine belongs to, "host:port" or "ray://host:port" another one, with as many tasks as it has room for.
    A cell that is lost with its worker is not tried again by Ray: the bench does it at its next start. How far a cell
    is, is not told while it is being made.
    """

    def __init__(self, address: str, jobs: int, threads: int) -> None:
        for name, value in (("jobs", jobs), ("threads", threads)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self._ray = needed("ray", "ray", "cluster", "a bench on a cluster")
        self._threads, self._tasks = threads, dict[Any, Task]()
        self._joined = bool(self._ray.is_initialized())  # by whoever called us, who will also end it
        if not self._joined:
            self._start(address, jobs * threads)
        self._room = jobs if address == LOCAL else None
        self._make = self._ray.remote(max_retries=0, num_cpus=threads)(_made)

    @property
    def free(self) -> int:
        room = self._room
        if room is None:  # nodes come and go
            room = int(self._ray.cluster_resources().get("CPU", 0)) // self._threads
        return room - len(self._tasks)

    def submit(self, task: Task) -> None:
        # the same names and places to import from as here
        made = self._make.remote(_whole(task), self._threads, registry.added(), sys.path)
        self._tasks[made] = task

    def wait(self, seconds: float, progress: Progress) -> list[Outcome]:
        if not self._tasks:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait([*self._tasks], timeout=seconds)
        return [self._ended(made, self._tasks.pop(made)) for made in ready]

    def stop(self) -> None:
        """A task that is being made gets what Ctrl-C gives it, and saves; one that waits for a core is dropped."""
        for made in self._tasks:
            self._ray.cancel(made)

    def close(self) -> None:
        if self._tasks:
            self.stop()
            self._ray.wait([*self._tasks], num_returns=len(self._tasks), timeout=30)
            self._tasks.clear()
        if not self._joined:
            self._ray.shutdown()

    def _start(self, address: str, cores: int) -> None:
        quiet = {"include_dashboard": False, "num_cpus": cores} if address == LOCAL else {"address": address}
        try:
            self._ray.init(log_to_driver=False, logging_level="ERROR", **quiet)
        except (ConnectionError, RuntimeError) as wrong:
            raise ValueError(f"no Ray cluster answers at {address!r}: {wrong}; start one with `ray start`") from None

    def _ended(self, made: Any, task: Task) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(made)
        except errors.TaskCancelledError:
            return Outcome(task.name, 0.0, stopped=True)
        except errors.OutOfMemoryError:
            why = "out of memory: take smaller batches, or give every cell more cores (--threads) so that fewer run"
            return Outcome(task.name, 0.0, why)
        except errors.WorkerCrashedError:
            why = (
                "its process on the cluster was ended from outside, most likely for want of memory: take smaller "
                "batches, or give every cell more cores (--threads) so that fewer run at a time"
            )
            return Outcome(task.name, 0.0, why)
        except errors.RayError as wrong:  # its node is gone, kinfold is not installed there, ...
            return Outcome(task.name, 0.0, f"the cluster could not make it: {wrong}")
        return outcome


def _whole(task: Task) -> Task:
    """A task has another working directory on another node."""
    return Task(task.kind, task.name, Path(task.folder).resolve(), dict(task.tables))


def _made(task: Task, threads: int, registered: list[tuple[str, str, str]], path: list[str]) -> Outcome:
    """On a node of the cluster."""
    sys.path[:] = [*path, *(place for place in sys.path if place not in path)]
    import torch

    from kinfold.bench.tasks import perform

    torch.set_num_threads(threads)
    for kind, name, target in registered:
        registry.register(kind, name, target)
    start = time.monotonic()
    if not task.folder.parents[_depth(task)].is_dir():
        why = (
            f"{os.uname().nodename} does not see {task.folder}: a bench on a cluster needs a folder that all nodes see"
        )
        return Outcome(task.name, 0.0, why)
    try:
        return perform(task)
    except KeyboardInterrupt:  # cancelled outside of a training
        return Outcome(task.name, time.monotonic() - start, stopped=True)
    except SystemExit as end:
        return Outcome(task.name, time.monotonic() - start, f"it ended its process with exit code {end.code}")


def _depth(task: Task) -> int:
    """How far the folder of a task lies below that of the bench, counted as Path.parents does."""
    return len(Path(task.name).parts) - 1
