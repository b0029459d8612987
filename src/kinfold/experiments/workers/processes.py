"""Workers on this machine: a fixed number of processes, replaced when one dies."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kinfold import registry
from kinfold.experiments.workers.tasks import Progress, Task, TaskResult
from kinfold.files.paths import open_append
from kinfold.training.run_folder import MAX_THREADS

GRACE = 30.0  # seconds to save and stop after SIGTERM, before SIGKILL


class WorkerPool(Protocol):
    """Runs the tasks of a bench."""

    @property
    def free(self) -> int:
        """How many more tasks can start now."""

    def submit(self, task: Task) -> None:
        """Start a task."""

    def wait(self, seconds: float, progress: Progress) -> list[TaskResult]:
        """Wait at most this long for results; return as soon as there is one."""

    def stop(self) -> None:
        """Ask all running tasks to save and stop; `wait` returns their results."""

    def close(self) -> None:
        """End all workers."""


class Processes:
    """Worker processes on this machine.

    Args:
        jobs: How many tasks run at a time.
        threads: Number of threads of each process.
        log: File for the output of the workers.
        timeout: Seconds without progress after which a task is ended; None waits forever. Progress is a training step.
            Reading data or a test reports none, and must end within this time.
        grace: Seconds that a worker has after SIGTERM to save and stop, before SIGKILL.
    """

    def __init__(self, jobs: int, threads: int, log: Path, timeout: float | None = None, grace: float = GRACE) -> None:
        check_workers(jobs, threads, timeout)
        self._jobs, self._threads, self._log = jobs, threads, log
        self.timeout, self._grace = timeout, grace
        self._stopping = False
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    @property
    def free(self) -> int:
        return self._jobs - sum(worker.task is not None for worker in self._workers)

    def submit(self, task: Task) -> None:
        idle = next((worker for worker in self._workers if worker.task is None), None)
        if idle is None:
            idle = _Worker.start(self._threads, self._log)
            self._workers.append(idle)
            self._selector.register(idle.results, selectors.EVENT_READ, idle)
        idle.begin(task)
        idle.send({"kind": task.kind, "name": task.name, "folder": str(task.folder), "tables": task.tables})

    def wait(self, seconds: float, progress: Progress) -> list[TaskResult]:
        results = []
        for key, _ in self._selector.select(seconds):
            worker: _Worker = key.data
            for message in worker.receive():
                worker.last_progress = time.monotonic()  # the first message says that it is ready
                if message["kind"] == "progress":
                    progress(message["name"], message["fraction"])
                elif message["kind"] == "result":
                    result = TaskResult(**{name: value for name, value in message.items() if name != "kind"})
                    results.append(self._count_timeout(worker, result))
                    worker.task = None
            if worker.ended:
                results += self._remove_worker(worker)
        self._end_overdue()
        return results

    def stop(self) -> None:
        self._stopping = True
        for worker in self._workers:
            if worker.task is not None:
                worker.terminate()

    def close(self) -> None:
        for worker in self._workers:  # all at once, so that they stop in parallel
            worker.release()
        for worker in self._workers:
            worker.close(self._grace)
        self._workers.clear()
        self._selector.close()

    def _end_overdue(self) -> None:
        """Send SIGTERM to workers without progress, and SIGKILL to those that ignored SIGTERM."""
        now = time.monotonic()
        for worker in self._workers:
            if worker.task is None:
                continue
            if worker.terminated_at is not None:
                if now - worker.terminated_at > self._grace:
                    worker.process.kill()
            elif self.timeout is not None and now - (worker.last_progress or now) > self.timeout:
                worker.timed_out = True
                worker.terminate()

    def _count_timeout(self, worker: "_Worker", result: TaskResult) -> TaskResult:
        """A task that stopped after a timeout would be as slow again, so it counts as an attempt."""
        if result.stopped and worker.timed_out and not self._stopping:
            return TaskResult(result.name, result.seconds, self._describe_timeout(), lost=True)
        return result

    def _remove_worker(self, worker: "_Worker") -> list[TaskResult]:
        """Remove a worker that died, and return the result of its task."""
        self._selector.unregister(worker.results)
        self._workers.remove(worker)
        worker.release()
        worker.close(self._grace)
        if worker.task is None:
            return []
        name, code = worker.task.name, worker.process.returncode
        if self._stopping and code < 0:
            return [TaskResult(name, 0.0, stopped=True)]
        if worker.timed_out:
            return [TaskResult(name, 0.0, self._describe_timeout(), lost=True)]
        if code >= 0:
            return [TaskResult(name, 0.0, f"its process ended with exit code {code}; see {self._log}")]
        error = f"its process was killed by {_signal_name(-code)}"
        if code == -signal.SIGKILL:
            error += ", most likely because memory ran out: use smaller batches, or fewer runs at a time (--jobs)"
        return [TaskResult(name, 0.0, error, lost=True)]

    def _describe_timeout(self) -> str:
        return f"it made no progress for {self.timeout:g} seconds and was ended; --timeout allows more"


def check_workers(jobs: int, threads: int, timeout: float | None) -> None:
    """Raise ValueError for impossible numbers of jobs or threads, or an impossible timeout."""
    for name, value in (("jobs", jobs), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        if value > MAX_THREADS:
            raise ValueError(f"{name} must be at most {MAX_THREADS}, got {value}")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a number of seconds above 0, got {timeout:g}; leave it out to wait forever")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no names
        return f"signal {number}"


@dataclass(eq=False)
class _Worker:
    process: "subprocess.Popen[bytes]"
    results: int  # file descriptor
    task: Task | None = None
    ended: bool = False
    last_progress: float | None = None  # None while the process starts, which has no timeout
    terminated_at: float | None = None
    timed_out: bool = False
    _rest: bytes = field(default=b"")

    @staticmethod
    def start(threads: int, log: Path) -> "_Worker":
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "kinfold.experiments.workers.process_main", str(writing), str(os.getpid())]
        # more threads than cores would wait for each other
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        with open_append(log, log.parent) as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
                env=environment,
            )
        os.close(writing)
        worker = _Worker(process, reading)
        worker.send({"threads": threads, "registered": registry.list_added(), "path": sys.path})
        return worker

    def begin(self, task: Task) -> None:
        self.task, self.terminated_at, self.timed_out = task, None, False
        if self.last_progress is not None:
            self.last_progress = time.monotonic()

    def terminate(self) -> None:
        """Ask for a stop, once: a second SIGTERM could interrupt the saving of the state."""
        if self.terminated_at is None:
            self.terminated_at = time.monotonic()
            self.process.send_signal(signal.SIGTERM)

    def send(self, message: object) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the process ended: the end of its results will show it
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def receive(self) -> list[dict[str, Any]]:
        data = os.read(self.results, 1 << 16)
        if not data:
            self.ended = True
            self.process.wait()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def release(self) -> None:
        """Let the worker end; a running task is asked to stop."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.task is not None:
            self.terminate()

    def close(self, grace: float) -> None:
        """Wait at most `grace` seconds for a released worker to end, then kill it."""
        try:
            self.process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.results >= 0:
            os.close(self.results)
            self.results = -1
