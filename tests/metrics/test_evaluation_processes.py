"""Inside torchrun the processes share the queries, and each of them gets the result of a single process."""

import json

import pytest

from tests import torchrun


@pytest.mark.sampled(2)
@pytest.mark.parametrize("world_size", [2, 3])
def test_every_process_gets_the_result_of_a_single_one(world_size, tmp_path):
    out = tmp_path / "results.json"
    torchrun.run(world_size, "tests.metrics.process_run", out)
    results = json.loads(out.read_text())
    assert len(results["processes"]) == world_size
    for on_process in results["processes"]:
        for name, alone in results["alone"].items():
            if isinstance(alone, dict):
                for metric, value in alone.items():
                    # sums over pairs are added in another order
                    near = 1e-12 if metric in ("uniformity",) else 0.0
                    assert on_process[name][metric] == pytest.approx(value, abs=near, rel=0), metric
            else:
                assert on_process[name] == pytest.approx(alone, rel=1e-12)
