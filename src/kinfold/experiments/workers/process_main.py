"""A process that makes cells of a bench one after the other: tasks come in as lines of JSON, outcomes go out so.

Run by kinfold.experiments.workers.processes as `python -m kinfold.experiments.workers.process_main`; it ends with
the process that started it.
"""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

WATCH = 0.2  # seconds between two looks whether the bench is still there
TOLD = 0.5  # seconds between two reports of progress


class ResultWriter:
    """Lines to the bench; progress not more often than somebody could look."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last = 0.0

    def send(self, message: dict[str, Any]) -> None:
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def progress(self, name: str, share: float) -> None:
        if time.monotonic() - self._last >= TOLD:
            self._last = time.monotonic()
            self.send({"kind": "progress", "name": name, "share": share})


def serve(tasks: TextIO, answers: ResultWriter) -> None:
    """The first line says how to work; every other one is a task."""
    start = json.loads(tasks.readline())
    # in the same order, so that a name is the same module there
    sys.path[:] = [*start["path"], *(path for path in sys.path if path not in start["path"])]
    import torch

    from kinfold import registry
    from kinfold.experiments.workers.tasks import Task, run_task

    torch.set_num_threads(start["threads"])
    for kind, name, target in start["registered"]:
        registry.register(kind, name, target)
    answers.send({"kind": "ready"})
    for line in tasks:
        given = json.loads(line)
        task = Task(given["kind"], given["name"], Path(given["folder"]), given["tables"])
        answers.send({"kind": "outcome", **asdict(run_task(task, answers.progress))})


def _end_with(parent: int) -> None:
    """A bench that was killed leaves no process behind that goes on training."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between trainings; within them it asks for a stop
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    with os.fdopen(int(sys.argv[1]), "w") as file:
        serve(sys.stdin, ResultWriter(file))


if __name__ == "__main__":
    main()
