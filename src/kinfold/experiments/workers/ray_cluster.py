"""Workers on a Ray cluster: every run is a task of Ray, on any node with a free core.

The folder of the bench and the data must be on a file system that all nodes see under the same path, and kinfold must
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
from kinfold.experiments.workers.processes import GRACE, check_workers
from kinfold.experiments.workers.tasks import Progress, Task, TaskResult
from kinfold.optional import import_optional

LOCAL = "local"
LOOPBACK = "127.0.0.1"


class RayCluster:
    """Workers on a Ray cluster.

    "local" starts Ray on this machine for `jobs` tasks at a time, and `close` ends it. It listens on the loopback
    interface only, so that no other machine can reach it. "auto" joins the cluster of this machine, "host:port" or
    "ray://host:port" another one, with as many tasks as it has cores for. Ray does not retry a task whose worker is
    lost; the bench does. Tasks report no progress while they run.

    Args:
        address: "local", "auto", "host:port" or "ray://host:port".
        jobs: How many tasks run at a time, for "local".
        threads: Cores and threads of each task.
        timeout: Seconds without progress after which the process of a task is ended; None waits forever.
        grace: Seconds that tasks have to save and stop when the bench is stopped, before they are killed.
    """

    def __init__(
        self, address: str, jobs: int, threads: int, timeout: float | None = None, grace: float = GRACE
    ) -> None:
        check_workers(jobs, threads, timeout)
        self._ray = import_optional("ray", "ray", "cluster", "a bench on a cluster")
        self._threads, self._timeout, self._grace = threads, timeout, grace
        self._tasks = dict[Any, Task]()
        self._stopped_at: float | None = None
        self._joined = bool(self._ray.is_initialized())  # by the caller, who will also end it
        if not self._joined:
            self._start(address, jobs * threads)
        self._jobs = jobs if address == LOCAL else None
        self._run_remote = self._ray.remote(max_retries=0, num_cpus=threads)(_run_on_node)

    @property
    def free(self) -> int:
        """How many more tasks can start now."""
        jobs = self._jobs
        if jobs is None:  # nodes come and go
            jobs = int(self._ray.cluster_resources().get("CPU", 0)) // self._threads
        return jobs - len(self._tasks)

    def submit(self, task: Task) -> None:
        """Start a task."""
        # with the registered names and the import path of this process
        handle = self._run_remote.remote(
            _resolve_folder(task), self._threads, registry.list_added(), sys.path, self._timeout
        )
        self._tasks[handle] = task

    def wait(self, seconds: float, progress: Progress) -> list[TaskResult]:
        """Wait at most this long for results; return as soon as there is one."""
        if not self._tasks:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait([*self._tasks], timeout=seconds)
        results = [self._read_result(handle, self._tasks.pop(handle)) for handle in ready]
        if self._stopped_at is not None and time.monotonic() - self._stopped_at > self._grace:
            for handle in self._tasks:
                self._ray.cancel(handle, force=True)
        return results

    def stop(self) -> None:
        """Interrupt running tasks as Ctrl-C does, so that they save; drop tasks that wait for a core.

        A task that does not react within the grace period is killed.
        """
        self._stopped_at = time.monotonic()
        for handle in self._tasks:
            self._ray.cancel(handle)

    def close(self) -> None:
        """Stop what runs, and end Ray if it was started here."""
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
        except (ConnectionError, RuntimeError) as error:
            raise ValueError(f"no Ray cluster answers at {address!r}: {error}; start one with `ray start`") from None

    def _read_result(self, handle: Any, task: Task) -> TaskResult:
        errors = self._ray.exceptions
        try:
            result: TaskResult = self._ray.get(handle)
        except errors.RayError as error:
            if self._stopped_at is not None or isinstance(error, errors.TaskCancelledError):
                return TaskResult(task.name, 0.0, stopped=True)
            lost = isinstance(error, errors.WorkerCrashedError | errors.NodeDiedError | errors.OutOfMemoryError)
            return TaskResult(task.name, 0.0, self._explain(error), lost=lost)
        return result

    def _explain(self, error: Exception) -> str:
        errors = self._ray.exceptions
        advice = "use smaller batches, or more cores for each run (--threads), so that fewer run at a time"
        if isinstance(error, errors.OutOfMemoryError):
            return f"out of memory: {advice}"
        if isinstance(error, errors.WorkerCrashedError):
            hung = (
                "" if self._timeout is None else f"it made no progress for {self._timeout:g} seconds (--timeout), or "
            )
            return f"{hung}its process on the cluster was killed, most likely because memory ran out: {advice}"
        return f"the cluster could not run it: {error}"  # its node is gone, kinfold is not installed there, ...


@contextmanager
def _loopback_only() -> Iterator[None]:
    """Let `ray.init` use 127.0.0.1 as the address of this machine.

    Servers of Ray listen on all interfaces unless the address of their node is 127.0.0.1, and `ray.init` replaces a
    given 127.0.0.1 by that of a network card. It does not where clusters are disabled, as on macOS and Windows. The
    variable is for the processes that Ray starts, the constant for this one, which may have read it already.
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


def _resolve_folder(task: Task) -> Task:
    """The task with an absolute folder: another node has another working directory."""
    return Task(task.kind, task.name, Path(task.folder).resolve(), dict(task.tables))


def _run_on_node(
    task: Task, threads: int, registered: list[tuple[str, str, str]], path: list[str], timeout: float | None
) -> TaskResult:
    """Run a task on a node of the cluster."""
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    import torch

    from kinfold.experiments.workers.tasks import run_task

    torch.set_num_threads(threads)
    for kind, name, target in registered:
        registry.register(kind, name, target)
    start = time.monotonic()
    if not task.folder.parents[_depth(task)].is_dir():
        node = os.uname().nodename
        error = f"{node} does not see {task.folder}: a bench on a cluster needs a folder that all nodes see"
        return TaskResult(task.name, 0.0, error)

    def watch(*progress: object) -> None:
        """Restart the timeout; without progress within it this process ends."""
        if timeout is not None:
            faulthandler.dump_traceback_later(timeout, exit=True, file=2)

    try:
        watch()
        return run_task(task, watch)
    except KeyboardInterrupt:  # canceled outside of a training
        return TaskResult(task.name, time.monotonic() - start, stopped=True)
    except SystemExit as end:
        return TaskResult(task.name, time.monotonic() - start, f"it ended its process with exit code {end.code}")
    finally:
        faulthandler.cancel_dump_traceback_later()


def _depth(task: Task) -> int:
    """Depth of the folder of a task below that of the bench, counted as Path.parents does."""
    return len(Path(task.name).parts) - 1
