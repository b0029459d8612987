"""What each process of tests/samplers/test_distributed.py runs, under torchrun with gloo."""

import json
import sys

import torch
import torch.distributed as dist

import kinfold
from tests import torchrun

LABELS = torch.arange(120) // 5


def create(name, **process):
    sampler = kinfold.samplers.create(name, LABELS, batch_size=16, seed=3, **process)
    if sampler.needs_embeddings:
        sampler.update(torch.arange(120), torch.randn(120, 6, generator=torch.Generator().manual_seed(0)))
    return sampler


def collect_batches(sampler):
    return [[[int(index) for index in batch] for batch in sampler] for _ in range(2)]


if __name__ == "__main__":
    samplers = {name: create(name) for name in kinfold.list("samplers")}  # before the process group
    torchrun.join()
    local = {name: collect_batches(sampler) for name, sampler in samplers.items()}
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, local)
    if dist.get_rank() == 0:
        whole = {name: collect_batches(create(name, rank=0, world_size=1)) for name in kinfold.list("samplers")}
        with open(sys.argv[1], "w") as out:
            json.dump({"ranks": gathered, "whole": whole}, out)
    dist.destroy_process_group()
