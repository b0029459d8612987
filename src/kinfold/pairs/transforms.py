"""Whether code may depend on the values of tensors: not in a compiled graph, and not inside `torch.func` transforms."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_traces = 0  # how many times `tracing` is active


@contextmanager
def tracing() -> Iterator[None]:
    """Make `is_transformed` return True, while operations are recorded for a compiler."""
    global _traces
    _traces += 1
    try:
        yield
    finally:
        _traces -= 1


def is_traced() -> bool:
    """Return True inside `tracing`."""
    return _traces > 0


def is_transformed() -> bool:
    """Return True under torch.compile, inside torch.func.grad, vmap, jvp and similar transforms, and in `tracing`.

    Values are not available there, so no Python decision may depend on them. Warnings, range checks, sizes that depend
    on the data and custom autograd functions are left out. Plain operations, which the transforms support, replace
    them.

    Examples:
        >>> is_transformed(), torch.func.vmap(lambda x: x + is_transformed())(torch.zeros(2))
        (False, tensor([1., 1.]))
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or _traces > 0
