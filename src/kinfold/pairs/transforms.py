"""Whether code may depend on the values of tensors: not in a compiled graph, and not inside `torch.func` transforms."""

import torch


def is_transformed() -> bool:
    """Return True under torch.compile and inside torch.func.grad, vmap, jvp and similar transforms.

    Values are not available there, so no Python decision may depend on them. Warnings, range checks, sizes that depend
    on the data and custom autograd functions are left out. Plain operations, which the transforms support, replace
    them.

    Examples:
        >>> is_transformed(), torch.func.vmap(lambda x: x + is_transformed())(torch.zeros(2))
        (False, tensor([1., 1.]))
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
