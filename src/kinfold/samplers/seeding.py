"""Random numbers that depend on the seed, the epoch and the batch, and on nothing else."""

import numpy as np
import torch


def generator(seed: int, epoch: int, batch: int | None = None) -> torch.Generator:
    """A generator for one batch, or for what is drawn once per epoch; each has its own stream of numbers.

    >>> a, b = generator(0, 1), generator(1, 0)
    >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
    False
    """
    # a hash, because neighbouring numbers as seeds would make seed 1, epoch 0 and seed 0, epoch 1 the same
    source = (seed, epoch) if batch is None else (seed, epoch, batch + 1)
    mixed = np.random.SeedSequence(source).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))
