"""A module of the tests, or the command itself, on several ranks of this machine, with gloo."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(ranks, module, *arguments):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*start, "-m", module, *map(str, arguments)]


def run(ranks, module, *arguments, timeout=180):
    """Until all ranks are done; an error of one of them is shown."""
    process = subprocess.run(
        command(ranks, module, *arguments),
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert process.returncode == 0, process.stderr[-3000:]


def join():
    """Join the process group that torchrun describes, in a module that each rank runs."""
    # torch._dynamo, which optimizers import, keeps a group that is there when it is loaded: its threads would outlive
    # destroy_process_group and abort the process while Python shuts down
    import torch._dynamo  # noqa: F401

    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
