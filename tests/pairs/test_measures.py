"""Measures against direct formulas, and finite where those are not."""

import pytest
import torch
from torch.autograd import gradcheck

from kinfold import pairs
from kinfold.pairs.measures import squared_sphere_distance
from tests.problems import batch

X, _ = batch(61)
R, _ = batch(62, sizes=(3, 2))
NAIVE = {
    "dot": lambda a, b: a @ b,
    "cosine": lambda a, b: a @ b / (a.norm() * b.norm()),
    "euclidean": lambda a, b: (a - b).norm(),
    "squared_euclidean": lambda a, b: (a - b).norm() ** 2,
    "snr": lambda a, b: (a - b).var() / a.var(),
}


@pytest.mark.parametrize("name", NAIVE)
def test_matrix_and_rows_equal_the_formula(name):
    measure, naive = getattr(pairs, name), NAIVE[name]
    expected = torch.tensor([[naive(a, b) for b in R] for a in X], dtype=torch.float64)
    torch.testing.assert_close(measure(X, R), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(measure(X[:5], R, rows=True), expected.diagonal(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAIVE)
def test_gradients(name):
    measure = getattr(pairs, name)
    leaves = (X[:4].clone().requires_grad_(), R.clone().requires_grad_())
    assert gradcheck(lambda a, b: measure(a, b), leaves)
    assert gradcheck(lambda a, b: measure(a, b[:4], rows=True), leaves)


@pytest.mark.parametrize("name", NAIVE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [False, True])
def test_finite_gradients_at_zero_distance_and_zero_vectors(name, dtype, rows):
    measure = getattr(pairs, name)
    for x in (torch.zeros(3, 4, dtype=dtype), torch.ones(3, 4, dtype=dtype), X[:3, :4].to(dtype)):
        leaf = x.clone().requires_grad_()
        value = measure(leaf, leaf, rows=rows)
        value.sum().backward()
        assert bool(value.isfinite().all())
        assert bool(leaf.grad.isfinite().all())


def test_distance_of_an_item_to_itself_is_zero_to_rounding():
    assert pairs.euclidean(X, X, rows=True).max() < 1e-15
    assert pairs.euclidean(X, X).diagonal().max() < 1e-6
    assert pairs.sphere_distance(torch.tensor(1.0, dtype=torch.float64)) < 1e-15


def test_distances_far_from_the_origin_keep_their_digits():
    """The mean is removed before the product: without that nothing would be left of these in float32."""
    near = X.float() + 3000.0
    torch.testing.assert_close(
        pairs.euclidean(near, near),
        torch.cdist(near, near, compute_mode="donot_use_mm_for_euclid_dist"),
        rtol=1e-3,
        atol=2e-2,
    )


def test_normalize_is_exact_for_huge_and_tiny_rows_and_leaves_zero_alone():
    unit = X / X.norm(dim=1, keepdim=True)
    for scale in (1e200, 1.0, 1e-9):
        torch.testing.assert_close(pairs.normalize(X * scale), unit, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pairs.normalize(X.float() * 1e30), unit.float())
    leaf = torch.zeros(2, 3, requires_grad=True)
    pairs.normalize(leaf).sum().backward()
    assert bool((leaf.grad == 0).all())


def test_the_sphere_gives_the_same_distances_from_cosines():
    unit = pairs.normalize(X)
    torch.testing.assert_close(
        squared_sphere_distance(unit, unit), pairs.squared_euclidean(unit, unit), rtol=1e-10, atol=1e-12
    )
    off = ~torch.eye(len(X), dtype=torch.bool)
    torch.testing.assert_close(
        pairs.sphere_distance(pairs.cosine(X, X))[off], pairs.euclidean(unit, unit)[off], rtol=1e-10, atol=1e-10
    )
