"""In real processes every process finds its rank by itself, and the parts together are the global batch."""

import json

import pytest
import torch

import kinfold
from tests import torchrun


def launch(module, tmp_path):
    """Run a module in two processes and return what it wrote."""
    out = tmp_path / "result.json"
    torchrun.run(2, module, out)
    return json.loads(out.read_text())


def test_two_processes_share_the_batches_of_one(tmp_path):
    result = launch("tests.samplers.distributed_run", tmp_path)
    first, second = result["ranks"]
    for name in kinfold.list("samplers"):
        for epoch in range(2):
            together = [a + b for a, b in zip(first[name][epoch], second[name][epoch], strict=True)]
            assert together == result["whole"][name][epoch], name
        assert result["whole"][name][0] != result["whole"][name][1]


def join(first, second):
    """Join the parts of both processes, epoch by epoch."""
    return [[a + b for a, b in zip(*epoch, strict=True)] for epoch in zip(first, second, strict=True)]


def global_epochs():
    sampler = kinfold.samplers.create("spc", torch.arange(40) // 5, batch_size=16, per_class=4, seed=3)
    return [list(sampler) for _ in range(3)]


@pytest.mark.slow
def test_lightning_trains_on_new_global_batches_in_every_epoch(tmp_path):
    """With DDP on two processes, from the start and from a checkpoint; Lightning's own sampler is refused."""
    first, second = launch("tests.samplers.lightning_run", tmp_path)
    assert join(first["whole"], second["whole"]) == global_epochs()
    assert join(first["resumed"], second["resumed"]) == global_epochs()[2:]
    assert "Trainer(use_distributed_sampler=False)" in first["refusal"]


def test_accelerate_trains_on_new_global_batches_in_every_epoch(tmp_path):
    """Prepared with split_batches, or not prepared; from the start and from a checkpoint within an epoch."""
    first, second = launch("tests.samplers.accelerate_run", tmp_path)
    for setup in ("split", "unprepared", "resumed"):
        assert join(first[setup], second[setup]) == global_epochs(), setup
    assert "rank=0, world_size=1" in first["refusal"]
    assert "split_batches=True" in first["refusal"]
