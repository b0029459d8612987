"""Labels with chosen class sizes, and samplers that are ready to be iterated."""

import torch

import kinfold
from tests.problems import generator

NAMES = kinfold.list("samplers")
POOL_SAMPLERS = ["ddm", "gc", "frd"]
EMBEDDING_SAMPLERS = [*POOL_SAMPLERS, "anchor-neighbor", "smart-mining"]
PER_CLASS_SAMPLERS = ["spc", *POOL_SAMPLERS]  # those whose classes take turns


def labels_of(sizes, seed=0):
    """Labels 0, 1, .. in random order, label c exactly sizes[c] times."""
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=generator(seed))]


def embeddings_of(count, dim=3, seed=0):
    return torch.randn(count, dim, generator=generator(seed), dtype=torch.float64)


def make(name, labels, *, dim=3, **options):
    """Create a sampler with an embedding of every item; options that it does not have are left out."""
    target = kinfold.registry.resolve("samplers", name)
    accepted = target.__init__.__annotations__
    sampler = kinfold.samplers.create(name, labels, **{k: v for k, v in options.items() if k in accepted})
    sampler.update(torch.arange(len(labels)), embeddings_of(len(labels), dim))
    return sampler


def epoch_of(sampler, epoch=0):
    sampler.set_epoch(epoch)
    return list(sampler)
