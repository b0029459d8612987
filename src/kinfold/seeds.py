"""Generators derived from numbers that name a draw, so that no draw depends on who makes it or when."""

from torch import Generator

_MASK = (1 << 64) - 1


def derived(*numbers: int) -> Generator:
    """A generator for exactly these numbers, such as (seed, epoch, item): other numbers, other draws.

    >>> import torch
    >>> torch.equal(torch.rand(3, generator=derived(0, 1, 2)), torch.rand(3, generator=derived(0, 1, 2)))
    True
    >>> torch.equal(torch.rand(3, generator=derived(0, 1, 2)), torch.rand(3, generator=derived(0, 2, 1)))
    False
    """
    state = 0
    for number in numbers:
        state = _mixed((state + number + 0x9E3779B97F4A7C15) & _MASK)
    return Generator().manual_seed(state >> 1)


def _mixed(value: int) -> int:
    # the finalizer of SplitMix64: neighbouring inputs give unrelated outputs
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
