"""Gradients that are to be differentiated are those that are not, also where one input is computed from another."""

import pytest
import torch

import kinfold
from kinfold.pairs.gather import gather_dot
from tests.problems import generator

X = torch.randn(6, 3, dtype=torch.float64, generator=generator(0))
LABELS = torch.arange(6) // 2


def gather(x):
    return gather_dot(x, x.sin(), torch.tensor([0, 2, 2]), torch.tensor([1, 0, 3])).sum()


def n_pair(x):
    return kinfold.losses.create("n-pair")(x, LABELS, ref_embeddings=x.sin(), ref_labels=LABELS)


@pytest.mark.parametrize("function", [gather, n_pair])
def test_gradients_with_and_without_a_graph_are_equal(function):
    leaf = X.clone().requires_grad_()
    (expected,) = torch.autograd.grad(function(leaf), leaf)
    (slope,) = torch.autograd.grad(function(leaf), leaf, create_graph=True)
    torch.testing.assert_close(slope, expected, rtol=1e-12, atol=1e-12)
    assert slope.requires_grad
