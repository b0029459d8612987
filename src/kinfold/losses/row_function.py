"""A function of each row whose gradient is computed together with its value, in fewer passes than autograd takes."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs.transforms import is_transformed


class RowResult(NamedTuple):
    """Values of rows and their derivatives.

    Attributes:
        values: (B,).
        slopes: Derivative of the value of a row by its entries, (B, R), or by the columns listed for it, (B, W).
        columns: (B, W), if all other derivatives are zero. A column may occur twice.
    """

    values: Tensor
    slopes: Tensor
    columns: Tensor | None = None


PlainRows: TypeAlias = Callable[[Tensor], Tensor]
FastRows: TypeAlias = Callable[[Tensor], RowResult]


def compute_rows(entries: Tensor, fast: FastRows, plain: PlainRows) -> Tensor:
    """Compute a function of each row, (B,).

    Args:
        entries: (B, R).
        fast: Returns values and slopes, without autograd.
        plain: Computes the same values with plain operations, for second derivatives and for `torch.func`.
    """
    if is_transformed():
        return plain(entries)
    values: Tensor = _RowFunction.apply(entries, fast, plain)  # type: ignore[no-untyped-call]
    return values


class _RowFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entries: Tensor, fast: FastRows, plain: PlainRows) -> Tensor:
        values, slopes, columns = fast(entries)
        ctx.save_for_backward(entries, slopes, columns)
        ctx.plain = plain
        return values

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        entries, slopes, columns = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            leaf = entries.view_as(entries)
            again = ctx.plain(leaf)
            return *torch.autograd.grad(again, leaf, outer[0], create_graph=True), None, None
        gradient = slopes * outer[0][:, None]
        if columns is not None:
            gradient = torch.zeros_like(entries).scatter_add_(1, columns, gradient)
        return gradient, None, None
