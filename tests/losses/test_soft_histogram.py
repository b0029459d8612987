"""Soft histograms: every entry shared by two nodes, and no gradient for one that cannot move within the nodes."""

import pytest
import torch
from torch.autograd import gradcheck

from kinfold.losses.soft_histogram import soft_histogram
from tests.problems import generator

POSITIONS = torch.tensor([[0.0, 0.3, 3.0, 1.0], [-0.4, 3.7, 2.5, 1.9]], dtype=torch.float64)
EVERY = torch.ones(2, 4, dtype=torch.bool)


@pytest.mark.parametrize("nodes", [2, 4, 9])
def test_each_entry_counts_one_in_all(nodes):
    positions = torch.rand(3, 20, generator=generator(0), dtype=torch.float64) * (nodes + 1) - 1
    mask = torch.rand(3, 20, generator=generator(1)) < 0.7
    expected = torch.zeros(3, nodes, dtype=torch.float64)
    for row, column in mask.nonzero().tolist():
        at = min(max(positions[row, column].item(), 0.0), nodes - 1.0)
        for node in range(nodes):
            expected[row, node] += max(0.0, 1.0 - abs(at - node))
    torch.testing.assert_close(soft_histogram(positions, mask, nodes), expected, rtol=1e-12, atol=1e-12)


def test_entries_on_the_outermost_nodes_and_beyond_have_no_gradient():
    leaf = POSITIONS.clone().requires_grad_()
    outer = torch.arange(8, dtype=torch.float64).view(2, 4).square()
    (soft_histogram(leaf, EVERY, 4) * outer).sum().backward()
    still = (POSITIONS <= 0) | (POSITIONS >= 3)
    assert bool((leaf.grad[still] == 0).all())
    assert bool((leaf.grad[~still] != 0).all())


def test_the_gradient_between_nodes_is_that_of_the_value():
    between = torch.rand(3, 5, generator=generator(2), dtype=torch.float64) * 0.8 + 0.1
    positions = (between + torch.arange(5)).requires_grad_()
    mask = torch.rand(3, 5, generator=generator(3)) < 0.7
    assert gradcheck(lambda p: soft_histogram(p, mask, 6), (positions,))


def test_transformed_functions_have_the_same_values_and_gradients():
    outer = torch.arange(8, dtype=torch.float64).view(2, 4).square()

    def total(positions):
        return (soft_histogram(positions, EVERY, 4) * outer).sum()

    leaf = POSITIONS.clone().requires_grad_()
    value = total(leaf)
    value.backward()
    gradient, transformed = torch.func.grad_and_value(total)(POSITIONS)
    torch.testing.assert_close(transformed, value.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, leaf.grad, rtol=1e-12, atol=0)
