"""Large batches processed in row chunks give the same result as the whole matrix."""

import pytest
import torch

from kinfold.losses import row_chunks
from kinfold.pairs import Relation
from tests.problems import LOSSES, batch, draws, generator, gradient, has_proxies, kind_of, make

X, Y = batch(91, sizes=(5, 3, 1, 4, 6, 2))
ROWWISE = [n for n in LOSSES if kind_of(n) != "batch" and not draws(n)]


@pytest.fixture(params=[1, 50, 100])
def small_chunks(request, monkeypatch):
    """One row, two rows, four rows at a time; the last chunk is smaller."""
    monkeypatch.setattr(row_chunks, "MIN_ROWS", 1)
    monkeypatch.setattr(row_chunks, "CHUNK_PAIRS", request.param)


def both(name, monkeypatch, *args, reduction="mean", **options):
    chunked, whole = make(name, reduction=reduction).double(), make(name, reduction=reduction).double()
    results = gradient(chunked, *args, **options), gradient_of_parameters(chunked)
    with monkeypatch.context() as patch:
        patch.setattr(row_chunks, "CHUNK_PAIRS", 2**40)
        expected = gradient(whole, *args, **options), gradient_of_parameters(whole)
    torch.testing.assert_close(results, expected, rtol=1e-10, atol=1e-12)


def gradient_of_parameters(loss):
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in loss.parameters()]


@pytest.mark.parametrize("name", ROWWISE)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_chunks_equal_the_whole(name, reduction, small_chunks, monkeypatch):
    both(name, monkeypatch, X, Y, reduction=reduction)


@pytest.mark.parametrize("name", [n for n in ROWWISE if not has_proxies(n)])
def test_chunks_equal_the_whole_against_a_reference_set(name, small_chunks, monkeypatch):
    r, z = batch(92, sizes=(4, 4, 4, 1))
    both(name, monkeypatch, X, Y, ref_embeddings=r, ref_labels=z)


@pytest.mark.parametrize("name", [n for n in ROWWISE if kind_of(n) == "pair"])
def test_chunks_equal_the_whole_on_a_real_relation(name, small_chunks, monkeypatch):
    degree = torch.rand(len(X), len(X), generator=generator(1), dtype=torch.float64)
    both(name, monkeypatch, X, relation=degree)


def test_chunks_with_a_boundary_per_class(small_chunks, monkeypatch):
    chunked, whole = (make("margin", num_classes=6).double() for _ in range(2))
    results = gradient(chunked, X, Y), chunked.beta.grad
    monkeypatch.setattr(row_chunks, "CHUNK_PAIRS", 2**40)
    torch.testing.assert_close(results, (gradient(whole, X, Y), whole.beta.grad), rtol=1e-10, atol=1e-12)


def test_gradients_reach_references_that_ask_for_them(small_chunks, monkeypatch):
    def slopes():
        x, r = X.clone().requires_grad_(), X[:9].clone().requires_grad_()
        (2.5 * make("supcon")(x, Y, ref_embeddings=r, ref_labels=Y[:9])).backward()
        return x.grad, r.grad

    result = slopes()
    monkeypatch.setattr(row_chunks, "CHUNK_PAIRS", 2**40)
    torch.testing.assert_close(result, slopes(), rtol=1e-10, atol=1e-12)


def test_references_without_gradient_and_evaluation_without_any(small_chunks):
    x = X.clone().requires_grad_()
    make("lifted")(x, Y, ref_embeddings=X, ref_labels=Y).backward()
    assert x.grad is not None
    with torch.no_grad():
        torch.testing.assert_close(make("contrastive")(X, Y), make("contrastive")(x, Y).detach())


def test_a_batch_without_pairs_still_gives_a_differentiable_zero(small_chunks):
    for name in ROWWISE:
        if has_proxies(name):
            continue
        x = X.clone().requires_grad_()
        nothing = torch.zeros(len(X), len(X), dtype=torch.bool)
        value = make(name)(x, Y, tuples=Relation(nothing, nothing))
        value.backward()
        assert value.item() == 0
        assert bool((x.grad == 0).all())


@pytest.mark.parametrize("name", ["lifted", "contrastive", "margin", "nt-xent"])
def test_second_derivatives_are_those_of_the_whole(name, small_chunks, monkeypatch):
    def penalty():
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(make(name).double()(x, Y), x, create_graph=True)
        slope.square().sum().backward()
        return x.grad

    result = penalty()
    monkeypatch.setattr(row_chunks, "CHUNK_PAIRS", 2**40)
    torch.testing.assert_close(result, penalty(), rtol=1e-9, atol=1e-12)


def test_only_large_batches_are_processed_in_chunks():
    assert not row_chunks.should_chunk(640, 640)
    assert row_chunks.should_chunk(4096, 4096)
    assert not row_chunks.should_chunk(1, 10**9)
