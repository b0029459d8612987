"""log sum exp over a part of each row; its softmax is kept for the backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kinfold.pairs.masks import HUGE, get_columns, get_excluded, mask_to_float
from kinfold.pairs.transforms import is_transformed


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), exact to rounding: torch's default returns x above 20, where the difference is still 2e-9."""
    return functional.softplus(x, threshold=50.0)


def masked_logsumexp(values: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """log sum_j exp(scale * values_j) over the True entries of each row, (B,).

    A row without True entries gives about -1e30 with zero gradient. The limit is minus infinity, whose gradient is NaN.

    Examples:
        >>> masked_logsumexp(torch.zeros(2, 3), torch.tensor([[True, True, False], [False, False, False]]))
        tensor([ 6.9315e-01, -1.0000e+30])
    """
    if is_transformed():
        return _plain(values, mask, scale)
    result: Tensor = _LogSumExp.apply(values, mask, scale)  # type: ignore[no-untyped-call]
    return result


def _plain(values: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    columns = None if mask is None else get_columns(mask)
    if columns is not None:
        values, mask = values.gather(1, columns[0]), columns[1]
    values = scale * values
    return torch.logsumexp(values if mask is None else values.masked_fill(~mask, -HUGE), dim=1)


class _LogSumExp(torch.autograd.Function):
    """The softmax gives both results: its largest entry is 1 / sum exp(v - max v), and it is the gradient.

    A mask whose True entries are few and known (`get_columns`) is gathered first. One whose False entries are known
    (`get_excluded`) needs no arithmetic with the mask.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        columns = None if mask is None else get_columns(mask)
        if columns is not None:
            index, exists = columns
            result, share = _softmax(scale * values.gather(1, index), exists)
        else:
            index = None
            result, share = _softmax(scale * values, mask)
        ctx.save_for_backward(values, mask, share, index)
        ctx.scale = scale
        return result

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        values, mask, share, index = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            leaf = values.view_as(values)
            again = _plain(leaf, mask, ctx.scale)
            return *torch.autograd.grad(again, leaf, outer[0], create_graph=True), None, None
        slope = share * (ctx.scale * outer[0])[:, None]
        if index is not None:  # columns that do not exist have a share of zero
            slope = torch.zeros_like(values).scatter_add_(1, index, slope)
        return slope, None, None


def _softmax(scaled: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """log sum exp (B,) and softmax (B, R) over the True entries of each row; writes into `scaled`."""
    excluded = None if mask is None else get_excluded(mask)
    outside: Tensor | None = None  # 0 for True entries, -1 for the others
    if excluded is not None:
        scaled.view(-1).index_fill_(0, excluded, -HUGE)
    elif mask is not None:
        outside = mask_to_float(mask, scaled).sub_(1.0)
        scaled.add_(outside, alpha=HUGE)
    highest = scaled.amax(dim=1, keepdim=True)
    # subnormal numbers are a hundred times slower; e^-60 is already far below rounding
    reach = 60.0 if scaled.dtype == torch.float32 else 600.0
    share = torch.softmax(torch.maximum(scaled, highest - reach, out=scaled), dim=1)
    result = highest - share.amax(dim=1, keepdim=True).log()
    if excluded is not None:  # also for empty rows, whose softmax is uniform
        share.view(-1).index_fill_(0, excluded, 0.0)
    elif outside is not None:
        share.addcmul_(share, outside)
    return result.squeeze(1), share
