"""The measure of chosen pairs: row i of `x` with row j of `y`, for lists of i and j.

The rows are gathered a few at a time and again in the backward pass, so that no copy of them outlives its use: with
short lists of pairs such copies would be most of a loss' memory.
"""

from typing import Any

import torch
from torch import Tensor

from kinfold.pairs.transforms import is_transformed

_AT_ONCE = 1 << 20  # entries of a gathered block


def gathered_dot(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """x_i . y_j, (T,)

    >>> gathered_dot(torch.eye(2), torch.ones(3, 2), torch.tensor([0, 1]), torch.tensor([2, 2]))
    tensor([1., 1.])
    """
    return _gathered(x, y, i, j, squared=False)


def gathered_squared_euclidean(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """|x_i - y_j|^2, (T,), from differences: exact also where the two nearly coincide."""
    return _gathered(x, y, i, j, squared=True)


def _gathered(x: Tensor, y: Tensor, i: Tensor, j: Tensor, squared: bool) -> Tensor:
    if is_transformed():
        return _plain(x, y, i, j, squared)
    # one leaf of the graph for one tensor: its gradient is then gathered in one buffer
    found: Tensor = _Gathered.apply(x, None if y is x else y, i, j, squared)  # type: ignore[no-untyped-call]
    return found


def _plain(x: Tensor, y: Tensor, i: Tensor, j: Tensor, squared: bool) -> Tensor:
    return (x[i] - y[j]).square().sum(dim=-1) if squared else (x[i] * y[j]).sum(dim=-1)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None, i: Tensor, j: Tensor, squared: bool) -> Tensor:
        ctx.save_for_backward(x, i, j, *([] if y is None else [y]))
        ctx.squared = squared
        y = x if y is None else y
        found = x.new_empty(i.shape)
        for rows in _blocks(i, x):
            left, right = x[i[rows]], y[j[rows]]
            if squared:
                left.sub_(right)
                right = left
            found[rows] = torch.linalg.vecdot(left, right)
        return found

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        x, i, j, *other = ctx.saved_tensors
        weight = outer[0].unsqueeze(-1)
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            leaves = [leaf.view_as(leaf) for leaf in (x, *other)]
            value = _plain(leaves[0], leaves[-1], i, j, ctx.squared)
            first, *second = torch.autograd.grad(value, leaves, outer[0], create_graph=True)
            return first, second[0] if second else None, None, None, None
        y = other[0] if other else x
        by_x = torch.zeros_like(x)
        by_y = torch.zeros_like(y) if other else by_x
        for rows in _blocks(i, x):
            left, right = x[i[rows]], y[j[rows]]
            if ctx.squared:
                left.sub_(right)
                right = left.mul_(2.0 * weight[rows])
                by_x.index_add_(0, i[rows], right)
                by_y.index_add_(0, j[rows], left, alpha=-1.0)
            else:
                by_x.index_add_(0, i[rows], right.mul_(weight[rows]))
                by_y.index_add_(0, j[rows], left.mul_(weight[rows]))
        return by_x, by_y if other else None, None, None, None


def _blocks(i: Tensor, x: Tensor) -> list[slice]:
    step = max(1, _AT_ONCE // max(1, x.shape[-1]))
    return [slice(start, start + step) for start in range(0, i.shape[0], step)]
