"""log sum exp over part of a row: values, gradients, empty rows, extreme numbers."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.pairs.masks import set_columns, set_excluded
from tests.problems import generator

VALUES = torch.randn(4, 6, generator=generator(0), dtype=torch.float64)
MASK = torch.rand(4, 6, generator=generator(1)) < 0.6
MASK[2] = False


@pytest.mark.parametrize("scale", [1.0, -2.0, 40.0])
def test_value_and_gradient(scale):
    value = masked_logsumexp(VALUES, MASK, scale)
    for row in (0, 1, 3):
        expected = torch.logsumexp(scale * VALUES[row][MASK[row]], dim=0)
        torch.testing.assert_close(value[row], expected, rtol=1e-12, atol=1e-12)
    leaf = VALUES.clone().requires_grad_()
    assert gradcheck(lambda v: masked_logsumexp(v, MASK, scale)[[0, 1, 3]], (leaf,))
    assert gradgradcheck(lambda v: masked_logsumexp(v, MASK, scale)[[0, 1, 3]], (leaf,))
    torch.testing.assert_close(masked_logsumexp(VALUES, None, scale), torch.logsumexp(scale * VALUES, dim=1))


def test_what_is_outside_the_mask_gets_no_gradient_at_all():
    leaf = VALUES.clone().requires_grad_()
    masked_logsumexp(leaf, MASK, 3.0).sum().backward()
    assert bool((leaf.grad[~MASK] == 0).all())
    assert bool((leaf.grad[2] == 0).all())
    assert bool((leaf.grad[MASK] != 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_numbers(dtype):
    values = torch.tensor([[-1e4, 0.0, 1e4], [1e8, 1e8, -1e8]], dtype=dtype)
    mask = torch.ones_like(values, dtype=torch.bool)
    torch.testing.assert_close(masked_logsumexp(values, mask), torch.logsumexp(values, dim=1))
    assert masked_logsumexp(values, ~mask).tolist() == pytest.approx([-1e30, -1e30])


def test_softplus_keeps_its_digits_beyond_twenty():
    x = torch.tensor([-60.0, 0.0, 21.0, 30.0, 60.0], dtype=torch.float64)
    torch.testing.assert_close(softplus(x), torch.logaddexp(x, torch.zeros_like(x)), rtol=1e-15, atol=1e-20)


@pytest.mark.parametrize("spread", [1.0, 70.0, 85.0, 95.0, 300.0])  # a common maximum suffices below 82
def test_rows_far_below_the_highest_are_exact(spread):
    values = torch.randn(5, 40, generator=generator(2))
    values[1] -= spread
    values[2, :20] -= spread
    mask = torch.rand(5, 40, generator=generator(3)) < 0.5
    mask[3] = False
    leaf = values.clone().requires_grad_()
    result = masked_logsumexp(leaf, mask, 0.9)
    result.sum().backward()
    for row in (0, 1, 2, 4):
        inside = mask[row].numpy()
        exact = 0.9 * values[row].numpy().astype(np.float64)[inside]
        assert result[row].item() == pytest.approx(np.logaddexp.reduce(exact), rel=1e-6)
        share = np.exp(exact - np.logaddexp.reduce(exact))
        np.testing.assert_allclose(leaf.grad[row].numpy()[inside], 0.9 * share, rtol=1e-4, atol=1e-25)
        assert not leaf.grad[row].numpy()[~inside].any()
    assert result[3].item() == pytest.approx(-1e30)
    assert not leaf.grad[3].any()


@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_known_entries_give_the_result_of_any_mask(spread):
    values = spread * VALUES
    mask = torch.ones_like(VALUES, dtype=torch.bool)
    mask.view(-1)[torch.tensor([0, 7, 20])] = False
    excluded = mask.clone()
    set_excluded(excluded, torch.tensor([0, 7, 20]))
    torch.testing.assert_close(masked_logsumexp(values, excluded), masked_logsumexp(values, mask))
    few = torch.zeros_like(mask)
    few[:, 1:3] = True
    listed = few.clone()
    set_columns(listed, torch.tensor([[1, 2, 0]] * 4), torch.tensor([[True, True, False]] * 4))
    torch.testing.assert_close(masked_logsumexp(values, listed), masked_logsumexp(values, few))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_reaches_its_row_alone(number):
    values = torch.zeros(2, 3)
    values[0, 1] = number
    result = masked_logsumexp(values)
    assert not torch.isfinite(result[0])
    assert result[1].item() == pytest.approx(np.log(3))
