"""Squared distances of pairs that nearly coincide, where the product form |x|^2 + |y|^2 - 2 x.y loses its digits.

The product form has an absolute error of a few units of rounding of |x|^2. Where two rows are close, that is larger
than their squared distance, and a loss on the distance itself divides by its root: in float32 the gradient of two unit
rows at distance 4e-4 pointed nowhere. Such pairs are computed again from differences.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from kinfold.pairs.gathered import gathered_squared_euclidean
from kinfold.pairs.transforms import is_transformed

# Pairs whose squared distance is below so many units of rounding of |x|^2 + |y|^2 are computed again. The product of
# 200 unit pairs at d = 16, 128 and 1,024 was wrong by 2 units of rounding on average and 8.5 at most, so that what is
# kept has a relative error of at most 5e-4.
_UNITS = 2**13
# On a CPU the minima of groups of columns are looked at first. Comparing and listing all entries took 1.3 ms of a block
# of 2^20, of which the product takes 3.2 ms at d = 128; the minima take 0.1 ms.
_GROUP = 64

Counted = Callable[[Tensor, Tensor], Tensor]


def near_limit(squared_length: Tensor | float, dtype: torch.dtype) -> Tensor | float:
    """Return the squared distance below which two rows of this squared length are computed from differences."""
    return 2.0 * _UNITS * torch.finfo(dtype).eps * squared_length


def recompute_near(
    squared: Tensor, x: Tensor, y: Tensor, limit: Tensor | float, counted: Counted | None = None
) -> Tensor:
    """Replace squared distances (B, R) below `limit` by those computed from differences; may write into `squared`.

    Where few pairs are near, their rows are gathered and subtracted. Where they are so many that the gathered rows
    would be larger than the matrix, as in a collapsed batch, the product is taken in float64 instead. Value and
    gradient are exact to rounding in both cases, and can be differentiated again.

    The number of near pairs decides what is computed, so the host waits for a GPU once, and once more where near pairs
    exist. A compiled graph and transforms of `torch.func` cannot do that: they keep the product form.

    Args:
        squared: Squared distances in the product form, (B, R).
        x, y: Rows, (B, d) and (R, d).
        limit: What counts as near, a number or (B, 1); see `near_limit`.
        counted: Given row and column numbers (T,) says which of these pairs matter, (T,); by default all do. A batch
            compared with itself has each row near itself.

    Returns:
        (B, R).
    """
    if is_transformed():
        return squared
    fixed = squared.detach()
    i, j = _list_near(fixed, limit)
    if counted is not None and i.shape[0]:
        matters = counted(i, j)
        i, j = i[matters], j[matters]
    if i.shape[0] == 0:
        return squared
    if i.shape[0] * x.shape[1] > squared.numel() and x.dtype == torch.float32 and x.device.type != "mps":
        return torch.where(fixed < limit, _double_product(x, y), squared)
    return squared.index_put_((i, j), gathered_squared_euclidean(x, y, i, j))


def _list_near(squared: Tensor, limit: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return rows and columns (T,) of the entries below `limit`, a number or (B, 1)."""
    groups = squared.shape[1] // _GROUP
    if groups == 0 or squared.device.type != "cpu":
        i, j = (squared < limit).nonzero(as_tuple=True)
        return i, j
    last = groups * _GROUP
    grouped = squared[:, :last].reshape(-1, groups, _GROUP)  # (B, groups, _GROUP)
    row, group = (grouped.amin(dim=2) < limit).nonzero(as_tuple=True)
    place, column = (grouped[row, group] < (limit[row] if isinstance(limit, Tensor) else limit)).nonzero(as_tuple=True)
    rest_row, rest_column = (squared[:, last:] < limit).nonzero(as_tuple=True)
    i = torch.cat([row[place], rest_row])
    return i, torch.cat([group[place] * _GROUP + column, rest_column + last])


def _double_product(x: Tensor, y: Tensor) -> Tensor:
    """Return squared distances (B, R), computed in float64."""
    same = y is x
    center = y.detach().mean(dim=0)
    left = x.double() - center
    right = left if same else y.double() - center
    lengths = left.square().sum(dim=1)[:, None] + right.square().sum(dim=1)
    return torch.addmm(lengths, left, right.T, alpha=-2.0).clamp(min=0.0).to(x.dtype)
