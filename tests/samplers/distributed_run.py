"""What each rank of tests/samplers/test_processes.py runs, under torchrun with gloo."""

import json
import sys

import torch
import torch.distributed as dist

import kinfold
from tests import torchrun

LABELS = torch.arange(120) // 5


def made(name, **place):
    sampler = kinfold.samplers.create(name, LABELS, batch_size=16, seed=3, **place)
    if sampler.needs_embeddings:
        sampler.update(torch.arange(120), torch.randn(120, 6, generator=torch.Generator().manual_seed(0)))
    return sampler


def batches(sampler):
    return [[[int(index) for index in batch] for batch in sampler] for _ in range(2)]


if __name__ == "__main__":
    samplers = {name: made(name) for name in kinfold.list("samplers")}  # before the process group
    torchrun.join()
    own = {name: batches(sampler) for name, sampler in samplers.items()}
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, own)
    if dist.get_rank() == 0:
        whole = {name: batches(made(name, rank=0, ranks=1)) for name in kinfold.list("samplers")}
        with open(sys.argv[1], "w") as out:
            json.dump({"ranks": gathered, "whole": whole}, out)
    dist.destroy_process_group()
