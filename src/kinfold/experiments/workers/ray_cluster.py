"""Workers on a Ray cluster: every cell is a task of Ray, made wherever a core is free.

The folder of the bench and the data must lie on a file system that all nodes see under the same path, and kinfold must
be installed on all of them.
"""

import faulthandler
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from kinfold import registry
from kinfold.experiments.workers.processes import GRACE, Progress, check_workers
from kinfold.experiments.workers.tasks import Task, TaskResult
from kinfold.optional import import_optional

LOCAL = "local"
LOOPBACK = "127.0.0.1"


class RayCluster:
    """The cluster at `address`, with `threads` cores for each task.

    "local" starts Ray on this machine for `jobs` tasks at a time, and ends it at the close; it listens on the loopback
    interface alone, so that no other machine can reach it. "auto" joins the cluster that this machine belongs to,
    "host:port" or "ray://host:port" another one, with as many tasks as it has room for. A cell that is lost with its
    worker is not tried again by Ray but by the bench. How far a cell is, is not told while it is being made.

    Args:
        address: "local", "auto", "host:port" or "ray://host:port".
        jobs: How many tasks run at a time, for "local".
        threads: Cores and threads of each.
        timeout: Seconds without progress after which the process of a task is ended; None waits for ever.
        grace: Seconds that tasks have to save and stop when the bench is stopped; then they are ended.
    """

    def __init__(
        self, address: str, jobs: int, threads: int, timeout: float | None = None, grace: float = GRACE
    ) -> None:
        check_workers(jobs, threads, timeout)
        self._ray = import_optional("ray", "ray", "cluster", "a bench on a cluster")
        self._threads, self._timeout, self._grace = threads, timeout, grace
        self._tasks = dict[Any, Task]()
        self._stopped_at: float | None = None
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
        made = self._make.remote(_whole(task), self._threads, registry.list_added(), sys.path, self._timeout)
        self._tasks[made] = task

    def wait(self, seconds: float, progress: Progress) -> list[TaskResult]:
        if not self._tasks:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait([*self._tasks], timeout=seconds)
        outcomes = [self._ended(made, self._tasks.pop(made)) for made in ready]
        if self._stopped_at is not None and time.monotonic() - self._stopped_at > self._grace:
            for made in self._tasks:
                self._ray.cancel(made, force=True)
        return outcomes

    def stop(self) -> None:
        """A task that is being made gets what Ctrl-C gives it, and saves; one that waits for a core is dropped.

        A task that does not react to this within the grace period is ended by force.
        """
        self._stopped_at = time.monotonic()
        for made in self._tasks:
            self._ray.cancel(made)

    def close(self) -> None:
        if self._tasks:
            self.stop()
            self._ray.wait([*self._tasks], num_returns=len(self._tasks), timeout=self._grace)
            self._tasks.clear()
        if not self._joined:
            self._ray.shutdown()

    def _start(self, address: str, cores: int) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address == LOCAL:
            with _loopback_only():
                self._ray.init(include_dashboard=False, num_cpus=cores, **quiet)
            listens_on = self._ray.util.get_node_ip_address()
            if listens_on != LOOPBACK:
                self._ray.shutdown()
                raise RuntimeError(
                    f"Ray {self._ray.__version__} would listen on {listens_on}, where other machines could reach it, "
                    "instead of the loopback interface; run without --cluster local, or start a cluster yourself with "
                    "`ray start` and give --cluster auto"
                )
            return
        try:
            self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError) as wrong:
            raise ValueError(f"no Ray cluster answers at {address!r}: {wrong}; start one with `ray start`") from None

    def _ended(self, made: Any, task: Task) -> TaskResult:
        errors = self._ray.exceptions
        try:
            outcome: TaskResult = self._ray.get(made)
        except errors.RayError as wrong:
            if self._stopped_at is not None or isinstance(wrong, errors.TaskCancelledError):
                return TaskResult(task.name, 0.0, stopped=True)
            lost = isinstance(wrong, errors.WorkerCrashedError | errors.NodeDiedError | errors.OutOfMemoryError)
            return TaskResult(task.name, 0.0, self._explain(wrong), lost=lost)
        return outcome

    def _explain(self, wrong: Exception) -> str:
        errors = self._ray.exceptions
        if isinstance(wrong, errors.OutOfMemoryError):
            return "out of memory: take smaller batches, or give every cell more cores (--threads) so that fewer run"
        if isinstance(wrong, errors.WorkerCrashedError):
            hung = (
                "" if self._timeout is None else f"it made no progress for {self._timeout:g} seconds (--timeout), or "
            )
            return (
                f"{hung}its process on the cluster was ended from outside, most likely for want of memory: take "
                "smaller batches, or give every cell more cores (--threads) so that fewer run at a time"
            )
        return f"the cluster could not make it: {wrong}"  # its node is gone, kinfold is not installed there, ...


@contextmanager
def _loopback_only() -> Iterator[None]:
    """Have `ray.init` take 127.0.0.1 for the address of this machine.

    Servers of Ray listen on all interfaces unless the address of their node is 127.0.0.1, and `ray.init` replaces a
    given 127.0.0.1 by that of a network card. It does not where clusters are switched off, as they are on macOS and
    Windows. The variable is for the processes that Ray starts, the constant for this one, which may have read it.
    """
    constants: Any = import_module("ray._private.ray_constants")
    variable = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before, enabled = os.environ.get(variable), getattr(constants, "ENABLE_RAY_CLUSTER", None)
    os.environ[variable] = "0"
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = enabled
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _whole(task: Task) -> Task:
    """A task has another working directory on another node."""
    return Task(task.kind, task.name, Path(task.folder).resolve(), dict(task.tables))


def _made(
    task: Task, threads: int, registered: list[tuple[str, str, str]], path: list[str], timeout: float | None
) -> TaskResult:
    """On a node of the cluster."""
    sys.path[:] = [*path, *(place for place in sys.path if place not in path)]
    import torch

    from kinfold.experiments.workers.tasks import run_task

    torch.set_num_threads(threads)
    for kind, name, target in registered:
        registry.register(kind, name, target)
    start = time.monotonic()
    if not task.folder.parents[_depth(task)].is_dir():
        why = (
            f"{os.uname().nodename} does not see {task.folder}: a bench on a cluster needs a folder that all nodes see"
        )
        return TaskResult(task.name, 0.0, why)

    def watch(*progress: object) -> None:
        """Begin to wait for the next sign of progress; without one this process ends, whatever it is stuck in."""
        if timeout is not None:
            faulthandler.dump_traceback_later(timeout, exit=True, file=2)

    try:
        watch()
        return run_task(task, watch)
    except KeyboardInterrupt:  # cancelled outside of a training
        return TaskResult(task.name, time.monotonic() - start, stopped=True)
    except SystemExit as end:
        return TaskResult(task.name, time.monotonic() - start, f"it ended its process with exit code {end.code}")
    finally:
        faulthandler.cancel_dump_traceback_later()


def _depth(task: Task) -> int:
    """How far the folder of a task lies below that of the bench, counted as Path.parents does."""
    return len(Path(task.name).parts) - 1
