"""Gradient reversal: the identity whose gradient has the other sign (Ganin and Lempitsky, ICML 2015)."""

from typing import Any

import torch
from torch import Tensor


class _Reverse(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor) -> Tensor:
        return rows.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


def reverse_gradient(rows: Tensor) -> Tensor:
    """Return the same values; what is behind learns to do the opposite of what is in front.

    Args:
        rows: Any tensor.

    Examples:
        >>> rows = torch.ones(2, requires_grad=True)
        >>> reverse_gradient(rows).sum().backward()
        >>> rows.grad
        tensor([-1., -1.])
    """
    result: Tensor = _Reverse.apply(rows)  # type: ignore[no-untyped-call]
    return result
