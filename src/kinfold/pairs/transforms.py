"""Whether tensors may be looked at: not while a graph is compiled, nor inside `torch.func` transforms."""

import torch


def is_transformed() -> bool:
    """True under torch.compile and inside torch.func.grad, vmap, jvp and their like.

    Values do not exist there yet, or there are many of them at once: nothing may depend on them but tensors. Warnings,
    range checks, widths that follow the data and custom autograd functions are left out, and plain operations, which
    the transforms can follow, take their place.

    >>> is_transformed(), torch.func.vmap(lambda x: x + is_transformed())(torch.zeros(2))
    (False, tensor([1., 1.]))
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
