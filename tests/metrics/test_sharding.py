"""Inside torchrun the ranks share the queries, and every one of them gets what a single process gets."""

import json

import pytest

from tests import torchrun


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_give_what_one_process_gives(ranks, tmp_path):
    out = tmp_path / "found.json"
    torchrun.run(ranks, "tests.metrics.distributed_run", out)
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
