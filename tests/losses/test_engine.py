"""Batches processed in tiles give the same result as the whole matrix."""

import pytest
import torch

from kinfold.losses import tiles
from kinfold.pairs import Relation
from tests.problems import LOSSES, batch, draws, generator, gradient, has_proxies, kind_of, make

X, Y = batch(91, sizes=(5, 3, 1, 4, 6, 2))
ROWWISE = [n for n in LOSSES if kind_of(n) != "batch" and not draws(n)]


@pytest.fixture(params=[1, 50, 100])
def small_chunks(request, monkeypatch):
    """One row, two rows, four rows at a time; the last tile is smaller. Triangles are cut by columns too."""
    monkeypatch.setattr(tiles, "MIN_ROWS", 1)
    monkeypatch.setattr(tiles, "TILE_PAIRS", request.param)
    monkeypatch.setattr(tiles, "WHOLE_PAIRS", request.param)
    monkeypatch.setattr(tiles, "TRIANGLE_ROWS", {1: 1, 50: 5, 100: 4}[request.param])


def take_whole(patch):
    patch.setattr(tiles, "TILE_PAIRS", 2**40)
    patch.setattr(tiles, "WHOLE_PAIRS", 2**40)
    patch.setattr(tiles, "TRIANGLE_ROWS", 2**40)


def both(name, monkeypatch, *args, reduction="mean", **options):
    chunked, whole = make(name, reduction=reduction).double(), make(name, reduction=reduction).double()
    results = gradient(chunked, *args, **options), gradient_of_parameters(chunked)
    with monkeypatch.context() as patch:
        take_whole(patch)
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
    take_whole(monkeypatch)
    torch.testing.assert_close(results, (gradient(whole, X, Y), whole.beta.grad), rtol=1e-10, atol=1e-12)


def test_gradients_reach_references_that_ask_for_them(small_chunks, monkeypatch):
    def slopes():
        x, r = X.clone().requires_grad_(), X[:9].clone().requires_grad_()
        (2.5 * make("supcon")(x, Y, ref_embeddings=r, ref_labels=Y[:9])).backward()
        return x.grad, r.grad

    result = slopes()
    take_whole(monkeypatch)
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
    take_whole(monkeypatch)
    torch.testing.assert_close(result, penalty(), rtol=1e-9, atol=1e-12)


def test_only_large_batches_are_cut():
    assert tiles.plan_rows(640, 640) == [tiles.Tile()]
    assert len(tiles.plan_rows(4096, 4096)) == 16
    assert tiles.plan_rows(1, 10**9) == [tiles.Tile()]
    assert tiles.plan_triangle(319) == [tiles.Tile()]


@pytest.mark.parametrize("size", [321, 640, 1000, 20_000])
def test_tiles_of_the_triangle_cover_every_pair_once(size):
    covered = torch.zeros(size // 10 + 1, size // 10 + 1, dtype=torch.int32)
    step = 10
    for tile in tiles.plan_triangle(size):
        rows, columns = (torch.arange(size)[part][::1] for part in (tile.rows, tile.columns))
        rows, columns = rows[rows % step == 0], columns[columns % step == 0]
        if len(rows) and len(columns):
            used = rows[:, None] < columns if tile.is_upper else torch.ones(len(rows), len(columns), dtype=torch.bool)
            covered[rows[0] // step : rows[-1] // step + 1, columns[0] // step : columns[-1] // step + 1] += used.int()
    number = len(range(0, size, step))
    assert torch.equal(covered[:number, :number], torch.ones(number, number, dtype=torch.int32).triu(1))
