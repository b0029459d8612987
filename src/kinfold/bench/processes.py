"""Workers on this machine: as many processes as asked for, replaced when one dies."""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kinfold import registry
from kinfold.bench.tasks import Outcome, Task

Progress = Callable[[str, float], object]


class Workers(Protocol):
    """Who makes the cells of a bench."""

    @property
    def free(self) -> int:
        """How many more tasks can be begun now."""

    def submit(self, task: Task) -> None: ...

    def wait(self, seconds: float, progress: Progress) -> list[Outcome]:
        """Outcomes that arrive within this time; as soon as there is one."""

    def stop(self) -> None:
        """Ask everything that is being made to save and stop; outcomes follow."""

    def close(self) -> None: ...


class Processes:
    """`jobs` workers with `threads` threads each; what they print goes to `log`."""

    def __init__(self, jobs: int, threads: int, log: Path) -> None:
        for name, value in (("jobs", jobs), ("threads", threads)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self._jobs, self._threads, self._log = jobs, threads, log
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
        idle.task = task
        idle.give({"kind": task.kind, "name": task.name, "folder": str(task.folder), "tables": task.tables})

    def wait(self, seconds: float, progress: Progress) -> list[Outcome]:
        found = []
        for key, _ in self._selector.select(seconds):
            worker: _Worker = key.data
            for message in worker.received():
                if message["kind"] == "progress":
                    progress(message["name"], message["share"])
                elif message["kind"] == "outcome":
                    worker.task = None
                    found.append(Outcome(**{name: value for name, value in message.items() if name != "kind"}))
            if worker.ended:
                found += self._buried(worker)
        return found

    def stop(self) -> None:
        for worker in self._workers:
            if worker.task is not None:
                worker.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._selector.close()

    def _buried(self, worker: "_Worker") -> list[Outcome]:
        """A worker is gone; what it was making is not done."""
        self._selector.unregister(worker.answers)
        self._workers.remove(worker)
        worker.close()
        if worker.task is None:
            return []
        code = worker.process.returncode
        if code == -signal.SIGTERM:
            return [Outcome(worker.task.name, 0.0, stopped=True)]
        why = f"its process ended with exit code {code}; see {self._log}"
        if code < 0:
            why = f"its process was ended by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            why += ", most likely for want of memory: take smaller batches, or run fewer cells at a time (--jobs)"
        return [Outcome(worker.task.name, 0.0, why)]


@dataclass(eq=False)
class _Worker:
    process: "subprocess.Popen[bytes]"
    answers: int
    task: Task | None = None
    ended: bool = False
    _rest: bytes = field(default=b"")

    @staticmethod
    def start(threads: int, log: Path) -> "_Worker":
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "kinfold.bench.worker", str(writing), str(os.getpid())]
        # more threads than are used would only wait for each other
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        with open(log, "ab") as output:
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
        worker.give({"threads": threads, "registered": registry.added(), "path": sys.path})
        return worker

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

    def close(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()  # it ends when there are no more tasks
        if self.task is not None:
            self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.answers >= 0:
            os.close(self.answers)
            self.answers = -1
