"""Squared distances of pairs that nearly coincide, where the product form |x|^2 + |y|^2 - 2 x.y loses its digits.

The product form has an absolute error of a few units of rounding of |x|^2. Where two rows are close, this error is
larger than their squared distance. A loss on the distance divides by its square root: in float32 the gradient of two
unit rows at distance 4e-4 had a random direction. Such pairs are computed again from differences.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from kinfold.pairs.gather import gather_squared_euclidean
from kinfold.pairs.transforms import is_transformed

# Pairs whose squared distance is below this many units of rounding of |x|^2 + |y|^2 are computed again. The product of
# 200 unit pairs at d = 16, 128 and 1,024 had an error of 2 units of rounding on average and 8.5 at most, so the
# remaining pairs have a relative error of at most 5e-4.
_UNITS = 2**13
# On a CPU the minima of groups of columns are compared first. Comparing and listing all entries took 1.3 ms for 2^20
# entries, whose product takes 3.2 ms at d = 128; the minima take 0.1 ms.
_GROUP = 64

PairFilter: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def near_limit(squared_length: Tensor | float, dtype: torch.dtype) -> Tensor | float:
    """Squared distance below which two rows of this squared length are computed from differences."""
    return 2.0 * _UNITS * torch.finfo(dtype).eps * squared_length


def recompute_near(
    squared: Tensor, x: Tensor, y: Tensor, limit: Tensor | float, pair_filter: PairFilter | None = None
) -> Tensor:
    """Replace squared distances below `limit` by distances computed from differences; may write into `squared`.

    Few near pairs: their rows are gathered and subtracted. Many near pairs, as in a collapsed batch: the gathered rows
    would be larger than the matrix, so the product is computed in float64 instead. Value and gradient are exact to
    rounding in both cases, and can be differentiated twice.

    The number of near pairs decides what is computed. The host therefore waits for a GPU once, and once more if there
    are near pairs. A compiled graph and transforms of `torch.func` cannot do that: they keep the product form.

    Args:
        squared: Squared distances in the product form, (B, R).
        x, y: Rows, (B, d) and (R, d).
        limit: Squared distances below it are near; a number or (B, 1), see `near_limit`.
        pair_filter: Called with row and column indices (T,), returns which of these pairs are used, (T,). The default
            uses all pairs. In a batch compared with itself each row is near itself, and such pairs are not used.

    Returns:
        (B, R).
    """
    if is_transformed():
        return squared
    i, j = list_near(squared.detach(), limit, pair_filter)
    if i.shape[0] == 0:
        return squared
    if too_many_to_gather(i, x, squared):
        return torch.where(squared.detach() < limit, _double_product(x, y), squared)
    return squared.index_put_((i, j), gather_squared_euclidean(x, y, i, j))


def list_near(squared: Tensor, limit: Tensor | float, pair_filter: PairFilter | None = None) -> tuple[Tensor, Tensor]:
    """Rows and columns (T,) of the squared distances below `limit`; arguments as in `recompute_near`."""
    i, j = _list_below(squared, limit)
    if pair_filter is not None and i.shape[0]:
        is_used = pair_filter(i, j)
        i, j = i[is_used], j[is_used]
    return i, j


def too_many_to_gather(i: Tensor, x: Tensor, squared: Tensor) -> bool:
    """Whether the gathered rows of near pairs would be larger than the matrix, and a product in float64 is possible."""
    return i.shape[0] * x.shape[1] > squared.numel() and x.dtype == torch.float32 and x.device.type != "mps"


def _list_below(squared: Tensor, limit: Tensor | float) -> tuple[Tensor, Tensor]:
    """Rows and columns (T,) of the entries below `limit`, a number or (B, 1)."""
    groups = squared.shape[1] // _GROUP
    if groups == 0 or squared.device.type != "cpu":
        i, j = (squared < limit).nonzero(as_tuple=True)
        return i, j
    last = groups * _GROUP
    grouped = squared[:, :last].reshape(-1, groups, _GROUP)  # (B, groups, _GROUP)
    row, group = (grouped.amin(dim=2) < limit).nonzero(as_tuple=True)
    hit, column = (grouped[row, group] < (limit[row] if isinstance(limit, Tensor) else limit)).nonzero(as_tuple=True)
    rest_row, rest_column = (squared[:, last:] < limit).nonzero(as_tuple=True)
    i = torch.cat([row[hit], rest_row])
    return i, torch.cat([group[hit] * _GROUP + column, rest_column + last])


def _double_product(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances (B, R) from a product in float64."""
    mean = y.detach().mean(dim=0)
    left = x.double() - mean
    right = left if y is x else y.double() - mean
    lengths = left.square().sum(dim=1)[:, None] + right.square().sum(dim=1)
    return torch.addmm(lengths, left, right.T, alpha=-2.0).clamp(min=0.0).to(x.dtype)
