"""Scores of listed pairs: row i of `x` with row j of `y`, for index tensors i and j.

The rows are gathered in chunks, and again in the backward pass, so that no copy of them is kept. With short lists of
pairs such copies would be most of a loss' memory.
"""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs.fast_function import FastFunction, Tensors, Wanted

# Entries gathered at a time. 1,280 pairs of 1,024 dimensions took 2.2 ms with 2^18, 1.7 with 2^16, 2.3 with 2^14.
_CHUNK_ENTRIES = 1 << 16

Form: TypeAlias = Literal["dot", "squared", "minkowski"]
_Inputs: TypeAlias = tuple[Tensor, Tensor | None, Tensor, Tensor]


def gather_dot(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """x_i . y_j, (T,)

    Examples:
        >>> gather_dot(torch.eye(2), torch.ones(3, 2), torch.tensor([0, 1]), torch.tensor([2, 2]))
        tensor([1., 1.])
    """
    return _gather(x, y, i, j, "dot")


def gather_squared_euclidean(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """|x_i - y_j|^2, (T,), from differences: exact also where two rows nearly coincide."""
    return _gather(x, y, i, j, "squared")


def gather_minkowski(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """(|x_i - y_j|^2 - (x_0 - y_0)^2) / 2 with x_0 = sqrt(1 + |x|^2), (T,): half squared distances on the hyperboloid.

    From differences: x_0 - y_0 = (x - y).(x + y) / (x_0 + y_0).
    """
    return _gather(x, y, i, j, "minkowski")


def _gather(x: Tensor, y: Tensor, i: Tensor, j: Tensor, form: Form) -> Tensor:
    # where y is x, pass it once: its gradient is then accumulated in one buffer
    scores: Tensor = _GatherPairs(form)(x, None if y is x else y, i, j)
    return scores


def _score(left: Tensor, right: Tensor, form: Form) -> Tensor:
    """Scores of rows with rows, (T,)."""
    if form == "dot":
        products: Tensor = torch.linalg.vecdot(left, right)
        return products
    difference = left - right
    squared: Tensor = torch.linalg.vecdot(difference, difference)
    if form == "squared":
        return squared
    return 0.5 * (squared - _subtract_times(left, right, difference).square())


def measure_minkowski(left: Tensor, right: Tensor) -> Tensor:
    """`gather_minkowski` of rows with rows, (T,)."""
    return _score(left, right, "minkowski")


def _subtract_times(left: Tensor, right: Tensor, difference: Tensor) -> Tensor:
    """x_0 - y_0 of rows with rows, (T,)."""
    left_time, right_time = ((1.0 + torch.linalg.vecdot(rows, rows)).sqrt() for rows in (left, right))
    times: Tensor = torch.linalg.vecdot(difference, left + right) / (left_time + right_time)
    return times


class _GatherPairs(FastFunction):
    def __init__(self, form: Form) -> None:
        self._form = form

    def compute(self, inputs: _Inputs, wanted: Wanted) -> tuple[Tensor, Tensors]:
        x, y, i, j = inputs
        y = x if y is None else y
        scores = x.new_empty(i.shape)
        for rows in _split_rows(i, x):
            scores[rows] = _score(x[i[rows]], y[j[rows]], self._form)
        return scores, []

    def differentiate(self, inputs: _Inputs, kept: Tensors, outer: tuple[Tensor], wanted: Wanted) -> Tensors:
        x, y, i, j = inputs
        x_gradient = torch.zeros_like(x)
        y_gradient = x_gradient if y is None else torch.zeros_like(y)
        add_gathered_gradients(x_gradient, y_gradient, x, x if y is None else y, i, j, outer[0], self._form)
        return [x_gradient, None if y is None else y_gradient, None, None]

    def compute_plainly(self, x: Tensor, y: Tensor | None, i: Tensor, j: Tensor) -> Tensor:
        return _score(x[i], (x if y is None else y)[j], self._form)


def add_gathered_gradients(
    x_gradient: Tensor, y_gradient: Tensor, x: Tensor, y: Tensor, i: Tensor, j: Tensor, weight: Tensor, form: Form
) -> None:
    """Add the gradients of sum_t weight_t score_t by x and y, where score_t is that of x_i and y_j.

    Args:
        x_gradient, y_gradient: Where they are added, of the shapes of x and y.
        x, y, i, j: As in `gather_dot`.
        weight: (T,).
        form: "dot", "squared" for squared distances, or "minkowski", see `gather_minkowski`.
    """
    if form == "dot" and x.device.type == "cpu":
        _add_dot_gradients(x_gradient, y_gradient, x, y, i, j, weight)
        return
    weight = weight.unsqueeze(-1)
    for rows in _split_rows(i, x):
        left, right = x[i[rows]], y[j[rows]]
        if form == "dot":
            x_gradient.index_add_(0, i[rows], right.mul_(weight[rows]))
            y_gradient.index_add_(0, j[rows], left.mul_(weight[rows]))
        elif form == "squared":
            left.sub_(right).mul_(2.0 * weight[rows])
            x_gradient.index_add_(0, i[rows], left)
            y_gradient.index_add_(0, j[rows], left, alpha=-1.0)
        else:  # by x: x - y - x (x_0 - y_0) / x_0, and by y with the opposite sign and y in the last term
            difference = left - right
            times = _subtract_times(left, right, difference)[:, None]
            difference *= weight[rows]
            for sign, side, index, gradient in ((1.0, left, i, x_gradient), (-1.0, right, j, y_gradient)):
                slope = times * weight[rows] / (1.0 + torch.linalg.vecdot(side, side)).sqrt()[:, None]
                gradient.index_add_(0, index[rows], torch.addcmul(difference, side, slope, value=-1.0), alpha=sign)


def _add_dot_gradients(
    x_gradient: Tensor, y_gradient: Tensor, x: Tensor, y: Tensor, i: Tensor, j: Tensor, weight: Tensor
) -> None:
    """Add W y and W^T x, where W is the sparse matrix of the weights: no rows are copied, a third of the time."""
    if y_gradient is x_gradient:  # then y is x, and W + W^T takes one product
        i, j, weight = torch.cat([i, j]), torch.cat([j, i]), torch.cat([weight, weight])
    else:
        y_gradient.addmm_(_make_sparse(j, i, weight, (len(y), len(x))), x)
    x_gradient.addmm_(_make_sparse(i, j, weight, (len(x), len(y))), y)


def _make_sparse(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, shape, check_invariants=False)


def _split_rows(i: Tensor, x: Tensor) -> list[slice]:
    step = max(1, _CHUNK_ENTRIES // max(1, x.shape[-1]))
    return [slice(start, start + step) for start in range(0, i.shape[0], step)]
