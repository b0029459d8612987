"""log sum exp over a part of each row; its softmax is kept for the backward pass."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from kinfold.pairs.masks import HUGE, get_columns, get_excluded, mask_to_float
from kinfold.pairs.row_function import RowResult, compute_rows


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
    return compute_rows(values, lambda v: _fast(v, mask, scale), lambda v: _plain(v, mask, scale))


def _plain(values: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    columns = None if mask is None else get_columns(mask)
    if columns is not None:
        values, mask = values.gather(1, columns[0]), columns[1]
    values = scale * values
    return torch.logsumexp(values if mask is None else values.masked_fill(~mask, -HUGE), dim=1)


def _fast(values: Tensor, mask: Tensor | None, scale: float) -> RowResult:
    """The softmax is both the way to the result and its gradient.

    A mask whose True entries are few and known (`get_columns`) is gathered first. One whose False entries are known
    (`get_excluded`) needs no arithmetic with the mask.
    """
    columns = None if mask is None else get_columns(mask)
    index, inside = (None, mask) if columns is None else columns  # columns that do not exist have a share of zero
    entries = values if index is None else values.gather(1, index)
    highest = _find_common_maximum(entries, scale)
    if highest is None:
        result, share = _softmax(scale * entries, inside)
        return RowResult(result, share if scale == 1.0 else share.mul_(scale), index)
    below = torch.add(entries.new_tensor(-highest), entries, alpha=scale)
    return RowResult(*_softmax_below(highest, below, inside, scale), index)


def _find_common_maximum(values: Tensor, scale: float) -> float | None:
    """A number to subtract in all rows before exp, None where an exponential could then be too small to be exact."""
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64) or values.numel() == 0:
        return None
    ends = [scale * float(end) for end in values.aminmax()]
    span = -math.log(torch.finfo(values.dtype).tiny) - 5.0  # 82 for float32
    return max(ends) if max(ends) - min(ends) < span else None


def _softmax_below(highest: float, scaled: Tensor, mask: Tensor | None, factor: float) -> tuple[Tensor, Tensor]:
    """`_softmax` times a factor, of rows from which their common maximum was subtracted, in half of its passes."""
    share = scaled.exp_()
    excluded = None if mask is None else get_excluded(mask)
    if excluded is not None:
        share.view(-1).index_fill_(0, excluded, 0.0)
    elif mask is not None:
        share.mul_(mask_to_float(mask, share))
    total = share.sum(dim=1, keepdim=True)
    share.mul_(torch.where(total > 0, factor / total, 0.0))
    return (total.log() + highest).clamp_(min=-HUGE).squeeze(1), share  # log 0 where nothing is inside


def _softmax(scaled: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """log sum exp (B,) and softmax (B, R) over the True entries of each row; writes into `scaled`.

    The largest entry of the softmax is 1 / sum exp(v - max v).
    """
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
