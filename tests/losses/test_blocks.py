"""Large batches taken by blocks of rows give what the whole matrix gives, and hold none of it."""

import pytest
import torch

from kinfold.losses import blocks
from kinfold.pairs import Relation
from tests.problems import LOSSES, batch, draws, generator, gradient, has_proxies, kind_of, make

X, Y = batch(91, sizes=(5, 3, 1, 4, 6, 2))
ROWWISE = [n for n in LOSSES if kind_of(n) != "batch" and not draws(n)]


@pytest.fixture(params=[1, 50, 100])
def small_blocks(request, monkeypatch):
    """One row, two rows, four rows at a time; the last block is smaller."""
    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)
    monkeypatch.setattr(blocks, "BLOCK_PAIRS", request.param)


def both(name, monkeypatch, *args, reduction="mean", **given):
    blocked, whole = make(name, reduction=reduction).double(), make(name, reduction=reduction).double()
    results = gradient(blocked, *args, **given), gradient_of_parameters(blocked)
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "BLOCK_PAIRS", 2**40)
        expected = gradient(whole, *args, **given), gradient_of_parameters(whole)
    torch.testing.assert_close(results, expected, rtol=1e-10, atol=1e-12)


def gradient_of_parameters(loss):
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in loss.parameters()]


@pytest.mark.parametrize("name", ROWWISE)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_blocks_equal_the_whole(name, reduction, small_blocks, monkeypatch):
    both(name, monkeypatch, X, Y, reduction=reduction)


@pytest.mark.parametrize("name", [n for n in ROWWISE if not has_proxies(n)])
def test_blocks_equal_the_whole_against_a_reference_set(name, small_blocks, monkeypatch):
    r, z = batch(92, sizes=(4, 4, 4, 1))
    both(name, monkeypatch, X, Y, ref_embeddings=r, ref_labels=z)


@pytest.mark.parametrize("name", [n for n in ROWWISE if kind_of(n) == "pair"])
def test_blocks_equal_the_whole_on_a_real_relation(name, small_blocks, monkeypatch):
    degree = torch.rand(len(X), len(X), generator=generator(1), dtype=torch.float64)
    both(name, monkeypatch, X, relation=degree)


def test_blocks_with_a_boundary_per_class(small_blocks, monkeypatch):
    blocked, whole = (make("margin", num_classes=6).double() for _ in range(2))
    results = gradient(blocked, X, Y), blocked.beta.grad
    monkeypatch.setattr(blocks, "BLOCK_PAIRS", 2**40)
    torch.testing.assert_close(results, (gradient(whole, X, Y), whole.beta.grad), rtol=1e-10, atol=1e-12)


def test_gradients_reach_references_that_ask_for_them(small_blocks, monkeypatch):
    def slopes():
        x, r = X.clone().requires_grad_(), X[:9].clone().requires_grad_()
        (2.5 * make("supcon")(x, Y, ref_embeddings=r, ref_labels=Y[:9])).backward()
        return x.grad, r.grad

    found = slopes()
    monkeypatch.setattr(blocks, "BLOCK_PAIRS", 2**40)
    torch.testing.assert_close(found, slopes(), rtol=1e-10, atol=1e-12)


def test_references_without_gradient_and_evaluation_without_any(small_blocks):
    x = X.clone().requires_grad_()
    make("lifted")(x, Y, ref_embeddings=X, ref_labels=Y).backward()
    assert x.grad is not None
    with torch.no_grad():
        torch.testing.assert_close(make("contrastive")(X, Y), make("contrastive")(x, Y).detach())


def test_a_batch_without_pairs_is_still_a_zero_with_a_graph(small_blocks):
    for name in ROWWISE:
        if has_proxies(name):
            continue
        x = X.clone().requires_grad_()
        nobody = torch.zeros(len(X), len(X), dtype=torch.bool)
        value = make(name)(x, Y, tuples=Relation(nobody, nobody))
        value.backward()
        assert value.item() == 0
        assert bool((x.grad == 0).all())


@pytest.mark.parametrize("name", ["lifted", "contrastive", "margin", "nt-xent"])
def test_second_derivatives_are_those_of_the_whole(name, small_blocks, monkeypatch):
    def penalty():
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(make(name).double()(x, Y), x, create_graph=True)
        slope.square().sum().backward()
        return x.grad

    found = penalty()
    monkeypatch.setattr(blocks, "BLOCK_PAIRS", 2**40)
    torch.testing.assert_close(found, penalty(), rtol=1e-9, atol=1e-12)


def test_only_large_batches_are_taken_apart():
    assert not blocks.worthwhile(640, 640)
    assert blocks.worthwhile(4096, 4096)
    assert not blocks.worthwhile(1, 10**9)
