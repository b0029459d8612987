"""In real processes each rank finds its place by itself, and the stretches put together are the global batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import kinfold

ROOT = Path(__file__).parent.parent.parent


def test_two_processes_share_the_batches_of_one(tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "tests.samplers.distributed_run", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text())
    first, second = found["ranks"]
    for name in kinfold.list("samplers"):
        for epoch in range(2):
            together = [a + b for a, b in zip(first[name][epoch], second[name][epoch], strict=True)]
            assert together == found["whole"][name][epoch], name
        assert found["whole"][name][0] != found["whole"][name][1]
