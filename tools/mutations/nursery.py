"""A process that has imported all that is slow to import, and splits off a child for every run of pytest.

Starting Python, torch and the libraries of the tests takes longer than the tests that notice a change. Reads one JSON
line per run, {"arguments": [...], "environment": {...}, "folder": ..., "seconds": ...}, and answers with a line that
holds the exit code: negative for a signal, "null" where the run took longer than its seconds.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import time

# not hypothesis: its pytest plugin has to come by pytest
SLOW = (
    "torch",
    "torch._dynamo",
    "torch.distributed",
    "scipy.optimize",
    "sklearn.metrics",
    "typer",
    "rich.console",
    "faiss",
    "pytorch_metric_learning.losses",
    "pytorch_metric_learning.utils.accuracy_calculator",
)


def main() -> None:
    for name in SLOW:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import pytest

    assert "kinfold" not in sys.modules, "the package is what changes from run to run"
    for line in sys.stdin:
        run = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()  # so that a test's own processes end with it
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            os.chdir(run["folder"])
            os.environ.update(run["environment"])
            sys.path[:0] = [run["folder"], *run["environment"]["PYTHONPATH"].split(os.pathsep)]
            sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in run["environment"]
            code = 3
            try:
                code = int(pytest.main(run["arguments"]))
            finally:
                os._exit(code)
        signal.signal(signal.SIGTERM, lambda *_, child=child: _end(child))
        print(json.dumps(_ended(child, run["seconds"])), flush=True)


def _end(child: int) -> None:
    """Of the child and of this process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os._exit(1)


def _ended(child: int, seconds: float) -> int | None:
    """The exit code of a child; None, and the end of it, where it takes too long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main()
