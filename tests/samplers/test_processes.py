"""In real processes each rank finds its place by itself, and the stretches put together are the global batch."""

import json

import torch

import kinfold
from tests import torchrun


def launched(module, tmp_path):
    """What two ranks of a module wrote down."""
    out = tmp_path / "found.json"
    torchrun.run(2, module, out)
    return json.loads(out.read_text())


def test_two_processes_share_the_batches_of_one(tmp_path):
    found = launched("tests.samplers.distributed_run", tmp_path)
    first, second = found["ranks"]
    for name in kinfold.list("samplers"):
        for epoch in range(2):
            together = [a + b for a, b in zip(first[name][epoch], second[name][epoch], strict=True)]
            assert together == found["whole"][name][epoch], name
        assert found["whole"][name][0] != found["whole"][name][1]


def joined(first, second):
    """The parts of both ranks put together, epoch by epoch."""
    return [[a + b for a, b in zip(*epoch, strict=True)] for epoch in zip(first, second, strict=True)]


def global_epochs():
    sampler = kinfold.samplers.create("spc", torch.arange(40) // 5, batch_size=16, per_class=4, seed=3)
    return [list(sampler) for _ in range(3)]


def test_lightning_trains_on_new_global_batches_in_every_epoch(tmp_path):
    """With ddp on two ranks, from the start and from a checkpoint; its own sharing out is refused."""
    first, second = launched("tests.samplers.lightning_run", tmp_path)
    assert joined(first["whole"], second["whole"]) == global_epochs()
    assert joined(first["resumed"], second["resumed"]) == global_epochs()[2:]
    assert "Trainer(use_distributed_sampler=False)" in first["refusal"]


def test_accelerate_trains_on_new_global_batches_in_every_epoch(tmp_path):
    """Prepared with split_batches, or not prepared; from the start and from a checkpoint within an epoch."""
    first, second = launched("tests.samplers.accelerate_run", tmp_path)
    for way in ("split", "unprepared", "resumed"):
        assert joined(first[way], second[way]) == global_epochs(), way
    assert "rank=0, ranks=1" in first["refusal"]
    assert "split_batches=True" in first["refusal"]
