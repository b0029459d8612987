"""A worker process of a bench: reads tasks as lines of JSON, and writes results as lines of JSON.

`kinfold.experiments.workers.processes` starts it as `python -m kinfold.experiments.workers.process_main`. It ends with
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

PARENT_SECONDS = 0.2  # between two checks whether the bench is still running
PROGRESS_SECONDS = 0.5  # between two reports of progress


class ResultWriter:
    """Writes messages to the bench; progress at most every `PROGRESS_SECONDS`.

    Args:
        file: The stream to the bench.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last = 0.0

    def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def send_progress(self, name: str, fraction: float) -> None:
        """Write how far a task is, if the last report is old enough."""
        if time.monotonic() - self._last >= PROGRESS_SECONDS:
            self._last = time.monotonic()
            self.send({"kind": "progress", "name": name, "fraction": fraction})


def serve(tasks: TextIO, results: ResultWriter) -> None:
    """Run tasks until the stream ends. Its first line has the options of the worker, every other line is a task."""
    options = json.loads(tasks.readline())
    # in the same order, so that a name is the same module as in the bench
    sys.path[:] = [*options["path"], *(path for path in sys.path if path not in options["path"])]
    import torch

    from kinfold import registry
    from kinfold.experiments.workers.tasks import Task, run_task
    from kinfold.freed_memory import keep_freed_memory
    from kinfold.training.kept_results import keep_results

    keep_freed_memory()
    keep_results()
    torch.set_num_threads(options["threads"])
    for kind, name, target in options["registered"]:
        registry.register(kind, name, target)
    results.send({"kind": "ready"})
    for line in tasks:
        message = json.loads(line)
        task = Task(message["kind"], message["name"], Path(message["folder"]), message["tables"])
        results.send({"kind": "result", **asdict(run_task(task, results.send_progress))})


def _end_with(parent: int) -> None:
    """End this process when the bench is gone, so that a killed bench leaves no training behind."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def main() -> None:
    """Run a worker. Arguments: the file descriptor for results, and the id of the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between trainings; within them it asks for a stop
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    with os.fdopen(int(sys.argv[1]), "w") as file:
        serve(sys.stdin, ResultWriter(file))


if __name__ == "__main__":
    main()
