"""In real processes each rank finds its place by itself, and the stretches put together are the global batch."""

import json

import kinfold
from tests import torchrun


def test_two_processes_share_the_batches_of_one(tmp_path):
    out = tmp_path / "found.json"
    torchrun.run(2, "tests.samplers.distributed_run", out)
    found = json.loads(out.read_text())
    first, second = found["ranks"]
    for name in kinfold.list("samplers"):
        for epoch in range(2):
            together = [a + b for a, b in zip(first[name][epoch], second[name][epoch], strict=True)]
            assert together == found["whole"][name][epoch], name
        assert found["whole"][name][0] != found["whole"][name][1]
