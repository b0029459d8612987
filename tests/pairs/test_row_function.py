"""Functions of rows that return their derivatives together with their values."""

import torch
from torch.autograd import gradcheck, gradgradcheck

from kinfold.pairs.row_function import RowResult, compute_rows
from tests.problems import generator

X = torch.randn(3, 5, generator=generator(0), dtype=torch.float64)


def square(entries):
    return compute_rows(entries, lambda v: RowResult(v.square().sum(dim=1), 2 * v), lambda v: v.square().sum(dim=1))


def test_first_and_second_derivatives_and_transforms():
    leaf = X.clone().requires_grad_()
    assert gradcheck(square, (leaf,))
    assert gradgradcheck(square, (leaf,))
    torch.testing.assert_close(torch.func.grad(lambda v: square(v).sum())(X), 2 * X)


def test_derivatives_by_some_columns_are_added_where_a_column_occurs_twice():
    index = torch.tensor([[1, 1], [0, 4], [2, 3]])
    leaf = X.clone().requires_grad_()
    values = compute_rows(
        leaf,
        lambda v: RowResult(v.gather(1, index).sum(dim=1), torch.ones(3, 2, dtype=v.dtype), index),
        lambda v: v.gather(1, index).sum(dim=1),
    )
    values.sum().backward()
    expected = [[0, 2, 0, 0, 0], [1, 0, 0, 0, 1], [0, 0, 1, 1, 0]]
    assert leaf.grad.tolist() == expected
