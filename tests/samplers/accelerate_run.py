"""What each rank of tests/samplers/test_distributed.py runs with accelerate, under torchrun with gloo."""

import json
import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader

import kinfold

LABELS = torch.arange(40) // 5
EPOCHS = 3


def loader(**process):
    sampler = kinfold.samplers.create("spc", LABELS, batch_size=16, per_class=4, seed=3, **process)
    return DataLoader(torch.arange(40), batch_sampler=sampler)


def recorded(batches):
    return [[batch.tolist() for batch in batches] for _ in range(EPOCHS)]


def resumed(accelerator, folder):
    """One epoch and a batch, a checkpoint, and the rest by another loader."""
    first = loader(rank=0, world_size=1)
    prepared = accelerator.prepare(first)
    accelerator.register_for_checkpointing(first.batch_sampler)
    epochs = [[batch.tolist() for batch in prepared]]
    epochs.append([next(iter(prepared)).tolist()])
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    accelerator._custom_objects.clear()
    second = loader(rank=0, world_size=1)
    prepared = accelerator.prepare(second)
    accelerator.register_for_checkpointing(second.batch_sampler)
    accelerator.load_state(folder)
    prepared.set_epoch(second.batch_sampler.epoch)
    epochs[1] += [batch.tolist() for batch in prepared][1:]
    epochs.append([batch.tolist() for batch in prepared])
    return epochs


def refusal(accelerator):
    """What is said where accelerate would share out parts of batches."""
    try:
        accelerator.prepare(loader())
    except ValueError as refused:
        return str(refused)


if __name__ == "__main__":
    plain = loader()  # before the process group
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
    mine = {
        "split": recorded(accelerator.prepare(loader(rank=0, world_size=1))),
        "unprepared": recorded(plain),
        "resumed": resumed(accelerator, f"{sys.argv[1]}.state"),
        "refusal": refusal(accelerator),
    }
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, mine)
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as out:
            json.dump(gathered, out)
    dist.barrier()
    dist.destroy_process_group()
