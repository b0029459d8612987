"""Random generators derived from numbers such as (seed, epoch, item).

A draw depends on these numbers alone, not on the process that draws or on earlier draws.
"""

import numpy as np
from torch import Generator

_MASK = (1 << 64) - 1


def derive_generator(*numbers: int) -> Generator:
    """Return a generator that is seeded by these numbers, in this order.

    Args:
        *numbers: Integers that identify a draw, such as (seed, epoch, item).

    Examples:
        >>> import torch
        >>> a, b, c = (torch.rand(1, generator=derive_generator(*n)) for n in [(0, 1, 2), (0, 1, 2), (0, 2, 1)])
        >>> bool(a == b), bool(a == c)
        (True, False)
    """
    state = 0
    for number in numbers:
        state = _mix((state + number + 0x9E3779B97F4A7C15) & _MASK)
    return Generator().manual_seed(state >> 1)


def _mix(value: int) -> int:
    # the finalizer of SplitMix64: close inputs give unrelated outputs
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def derive_batch_generator(seed: int, epoch: int, batch: int | None = None) -> Generator:
    """Return a generator for one batch of a sampler, or for the draws of a whole epoch.

    Args:
        seed: The seed of the sampler.
        epoch: The epoch, from 0.
        batch: The batch of the epoch, from 0. None is for draws that are made once per epoch.

    Examples:
        >>> import torch
        >>> a, b = derive_batch_generator(0, 1), derive_batch_generator(1, 0)
        >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
        False
    """
    # a hash, because seed + epoch as a seed would make seed 1, epoch 0 and seed 0, epoch 1 the same
    source = (seed, epoch) if batch is None else (seed, epoch, batch + 1)
    mixed = np.random.SeedSequence(source).generate_state(1, np.uint64)
    return Generator().manual_seed(int(mixed[0]))
