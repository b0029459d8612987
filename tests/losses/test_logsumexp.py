"""log sum exp over part of a row: values, gradients, empty rows, extreme numbers."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from kinfold.losses.logsumexp import masked_logsumexp, softplus
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
