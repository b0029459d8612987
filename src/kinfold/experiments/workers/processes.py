"""Workers on this machine: as many processes as asked for, replaced when one dies."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kinfold import registry
from kinfold.experiments.workers.tasks import Task, TaskResult
from kinfold.files.paths import open_append
from kinfold.training.run_folder import MAX_THREADS

GRACE = 30.0  # seconds to save and stop after SIGTERM, before SIGKILL
Progress = Callable[[str, float], object]


class WorkerPool(Protocol):
    """Who makes the cells of a bench."""

    @property
    def free(self) -> int:
        """How many more tasks can be begun now."""

    def submit(self, task: Task) -> None: ...

    def wait(self, seconds: float, progress: Progress) -> list[TaskResult]:
        """Outcomes that arrive within this time; as soon as there is one."""

    def stop(self) -> None:
        """Ask everything that is being made to save and stop; outcomes follow."""

    def close(self) -> None: ...


class Processes:
    """Worker processes on this machine.

    Args:
        jobs: How many tasks run at a time.
        threads: Threads of each.
        log: The file that gets what workers print.
        timeout: Seconds without progress after which a task counts as hanging and is ended; None waits for ever.
            Progress is a training step; what has none, such as reading data or a test, must end within this time.
        grace: Seconds that a worker has after SIGTERM to save and stop; then it gets SIGKILL.
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
            self._selector.register(idle.answers, selectors.EVENT_READ, idle)
        idle.begin(task)
        idle.give({"kind": task.kind, "name": task.name, "folder": str(task.folder), "tables": task.tables})

    def wait(self, seconds: float, progress: Progress) -> list[TaskResult]:
        outcomes = []
        for key, _ in self._selector.select(seconds):
            worker: _Worker = key.data
            for message in worker.received():
                worker.last_progress = time.monotonic()  # the first message says that it is ready for its task
                if message["kind"] == "progress":
                    progress(message["name"], message["share"])
                elif message["kind"] == "outcome":
                    outcome = TaskResult(**{name: value for name, value in message.items() if name != "kind"})
                    outcomes.append(self._judge(worker, outcome))
                    worker.task = None
            if worker.ended:
                outcomes += self._buried(worker)
        self._end_overdue()
        return outcomes

    def stop(self) -> None:
        self._stopping = True
        for worker in self._workers:
            if worker.task is not None:
                worker.terminate()

    def close(self) -> None:
        for worker in self._workers:  # all at once, so that they stop side by side
            worker.release()
        for worker in self._workers:
            worker.close(self._grace)
        self._workers.clear()
        self._selector.close()

    def _end_overdue(self) -> None:
        """SIGTERM for what makes no progress, SIGKILL for what does not react to SIGTERM."""
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

    def _judge(self, worker: "_Worker", outcome: TaskResult) -> TaskResult:
        """A task that stopped because it was too slow would be too slow again: that is counted as an attempt."""
        if outcome.stopped and worker.timed_out and not self._stopping:
            return TaskResult(outcome.name, outcome.seconds, self._describe_timeout(), lost=True)
        return outcome

    def _buried(self, worker: "_Worker") -> list[TaskResult]:
        """A worker is gone; what it was making is not done."""
        self._selector.unregister(worker.answers)
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
        why = f"its process was ended by {_signal_name(-code)}"
        if code == -signal.SIGKILL:
            why += ", most likely for want of memory: take smaller batches, or run fewer cells at a time (--jobs)"
        return [TaskResult(name, 0.0, why, lost=True)]

    def _describe_timeout(self) -> str:
        return f"it made no progress for {self.timeout:g} seconds and was ended; --timeout allows more"


def check_workers(jobs: int, threads: int, timeout: float | None) -> None:
    """ValueError for numbers that no workers can have."""
    for name, value in (("jobs", jobs), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        if value > MAX_THREADS:
            raise ValueError(f"{name} must be at most {MAX_THREADS}, got {value}")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a number of seconds above 0, got {timeout:g}; leave it out to wait for ever")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals between the first and the last have no names
        return f"signal {number}"


@dataclass(eq=False)
class _Worker:
    process: "subprocess.Popen[bytes]"
    answers: int
    task: Task | None = None
    ended: bool = False
    last_progress: float | None = None  # None while it starts, which takes as long as it takes
    terminated_at: float | None = None
    timed_out: bool = False
    _rest: bytes = field(default=b"")

    @staticmethod
    def start(threads: int, log: Path) -> "_Worker":
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "kinfold.experiments.workers.process_main", str(writing), str(os.getpid())]
        # more threads than are used would only wait for each other
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
        worker.give({"threads": threads, "registered": registry.list_added(), "path": sys.path})
        return worker

    def begin(self, task: Task) -> None:
        self.task, self.terminated_at, self.timed_out = task, None, False
        if self.last_progress is not None:
            self.last_progress = time.monotonic()

    def terminate(self) -> None:
        """Ask for a stop, once: a second SIGTERM could come while the state is being saved."""
        if self.terminated_at is None:
            self.terminated_at = time.monotonic()
            self.process.send_signal(signal.SIGTERM)

    def give(self, message: object) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is gone: the end of its answers will say so
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def received(self) -> list[dict[str, Any]]:
        arrived = os.read(self.answers, 1 << 16)
        if not arrived:
            self.ended = True
            self.process.wait()
        *lines, self._rest = (self._rest + arrived).split(b"\n")
        return [json.loads(line) for line in lines]

    def release(self) -> None:
        """Let it end: there are no more tasks, and the one that it has is not waited for."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.task is not None:
            self.terminate()

    def close(self, grace: float) -> None:
        """Wait for the end of a worker that was released, but no longer than this."""
        try:
            self.process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.answers >= 0:
            os.close(self.answers)
            self.answers = -1
