"""Inside torchrun the ranks share the queries, and every one of them gets what a single process gets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_give_what_one_process_gives(ranks, tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += ["-m", "tests.metrics.distributed_run", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert len(found["ranks"]) == ranks
    for on_rank in found["ranks"]:
        for name, alone in found["alone"].items():
            if isinstance(alone, dict):
                for metric, value in alone.items():
                    # sums over pairs are added in another order
                    near = 1e-12 if metric in ("uniformity",) else 0.0
                    assert on_rank[name][metric] == pytest.approx(value, abs=near, rel=0), metric
            else:
                assert on_rank[name] == pytest.approx(alone, rel=1e-12)
