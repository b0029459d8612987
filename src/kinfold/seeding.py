"""Generators derived from numbers that name a draw, so that no draw depends on who makes it or when."""

import numpy as np
from torch import Generator

_MASK = (1 << 64) - 1


def derive_generator(*numbers: int) -> Generator:
    """A generator for exactly these numbers, such as (seed, epoch, item): other numbers, other draws.

    >>> import torch
    >>> torch.equal(torch.rand(3, generator=derived(0, 1, 2)), torch.rand(3, generator=derived(0, 1, 2)))
    True
    >>> torch.equal(torch.rand(3, generator=derived(0, 1, 2)), torch.rand(3, generator=derived(0, 2, 1)))
    False
    """
    state = 0
    for number in numbers:
        state = _mix((state + number + 0x9E3779B97F4A7C15) & _MASK)
    return Generator().manual_seed(state >> 1)


def _mix(value: int) -> int:
    # the finalizer of SplitMix64: neighbouring inputs give unrelated outputs
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def derive_batch_generator(seed: int, epoch: int, batch: int | None = None) -> Generator:
    """A generator for one batch, or for what is drawn once per epoch; each has its own stream of numbers.

    >>> import torch
    >>> a, b = derive_batch_generator(0, 1), derive_batch_generator(1, 0)
    >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
    False
    """
    # a hash, because neighbouring numbers as seeds would make seed 1, epoch 0 and seed 0, epoch 1 the same
    source = (seed, epoch) if batch is None else (seed, epoch, batch + 1)
    mixed = np.random.SeedSequence(source).generate_state(1, np.uint64)
    return Generator().manual_seed(int(mixed[0]))
