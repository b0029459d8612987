"""Robust losses from a stream of tiles have the value and the gradient of the whole matrix of pair losses."""

import pytest
import torch

from kinfold.dro import KL, Average, ChiSquare, KLBall, Robust, Simplex, TopK, chi_square_stream, robust_stream, stream
from kinfold.losses import Loss, tiles
from tests.problems import batch, generator, gradient, make

X, Y = batch(131, sizes=(5, 3, 1, 4, 6, 2, 3))
SETS = [
    Average(),
    Simplex(),
    TopK(7),
    TopK("2b"),
    TopK(40, divide="nonzero"),
    TopK(10_000),
    KL(0.3),
    KL(0.001),
    KLBall(radius=0.4),
    KLBall(effective=3),
    KLBall(effective=1),
    ChiSquare(radius=0.0),
    ChiSquare(radius=0.5),
    ChiSquare(effective=2),
    ChiSquare(effective=1),
    ChiSquare(effective=60),
]


@pytest.fixture(params=[(4, 30), (7, 2**18)], ids=["narrow", "wide"], autouse=True)
def _tiles(request, monkeypatch):
    """Several tiles that are read again in every pass; the narrow ones are also cut by columns."""
    rows, pairs = request.param
    monkeypatch.setattr(tiles, "MIN_ROWS", 1)
    monkeypatch.setattr(tiles, "TILE_PAIRS", pairs)
    monkeypatch.setattr(tiles, "WHOLE_PAIRS", 1)
    monkeypatch.setattr(tiles, "TRIANGLE_ROWS", rows)


def whole(loss, monkeypatch, *args, **options):
    """Value and gradient from the terms of the whole matrix."""
    with monkeypatch.context() as patch:
        patch.setattr(Robust, "compute", Loss.compute)
        return gradient(loss, *args, **options)


def check(loss, monkeypatch, *args, **options):
    expected = whole(loss, monkeypatch, *args, **options)
    torch.testing.assert_close(gradient(loss, *args, **options), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("chosen", SETS, ids=repr)
@pytest.mark.parametrize("group", ["batch", "sign", "class"])
@pytest.mark.parametrize("pair_loss", ["similarity-margin", "binomial", "margin"])
def test_the_stream_equals_the_whole(chosen, group, pair_loss, monkeypatch):
    check(Robust(pair_loss, chosen, group=group).double(), monkeypatch, X, Y)


@pytest.mark.parametrize("chosen", [Simplex(), TopK(7), KL(0.3), KLBall(effective=9), ChiSquare(effective=9)], ids=repr)
@pytest.mark.parametrize("group", ["batch", "sign", "class"])
def test_against_a_reference_set_and_on_a_relation(chosen, group, monkeypatch):
    r, z = batch(132, sizes=(4, 4, 4, 1))
    loss = Robust("binomial", chosen, group=group)
    check(loss, monkeypatch, X, Y, ref_embeddings=r, ref_labels=z)
    items = torch.arange(len(X)) % 20
    check(loss, monkeypatch, X, Y, ids=items)
    if group != "class":
        check(loss, monkeypatch, X, relation=torch.rand(len(X), len(X), generator=generator(3)) < 0.3)


@pytest.mark.parametrize("chosen", [KLBall(radius=0.0), KLBall(effective=10_000), ChiSquare(radius=0.0)], ids=repr)
def test_a_ball_without_room_is_the_average(chosen):
    expected = gradient(Robust("binomial", Average()), X, Y)
    torch.testing.assert_close(gradient(Robust("binomial", chosen), X, Y), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("k", [1, 5, 8, 1000])
@pytest.mark.parametrize("drop", [False, True])
def test_balanced_signs(k, drop, monkeypatch):
    loss = Robust("similarity-margin", TopK(k), group="sign", balanced=True, drop_zero_losses=drop)
    check(loss, monkeypatch, X, Y)


@pytest.mark.parametrize("chosen", [Simplex(), KL(0.1), KLBall(effective=9), ChiSquare(effective=9)], ids=repr)
def test_dropped_zero_losses(chosen, monkeypatch):
    check(Robust("similarity-margin", chosen, drop_zero_losses=True), monkeypatch, X, Y)


@pytest.mark.parametrize("chosen", [Simplex(), ChiSquare(effective=9), ChiSquare(effective=100)], ids=repr)
def test_more_pairs_with_weight_than_a_list_should_hold(chosen, monkeypatch):
    monkeypatch.setattr(stream, "LONGEST_LIST", 0)
    monkeypatch.setattr(chi_square_stream, "LONGEST_LIST", 0)
    check(Robust("binomial", chosen), monkeypatch, X, Y)
    check(Robust("similarity-margin", chosen), monkeypatch, X, Y)


def test_the_sample_of_a_large_batch_holds_many_of_the_losses_that_have_weight(monkeypatch):
    monkeypatch.setattr(robust_stream, "_SAMPLE_ROWS", 4)
    monkeypatch.setattr(robust_stream, "_SAMPLE_LOSSES", 16)
    monkeypatch.setattr(robust_stream, "_SAMPLE_SHARE", 0.25)
    samples = []
    start = chi_square_stream.ChiSquareSolver.start
    monkeypatch.setattr(
        chi_square_stream.ChiSquareSolver, "start", lambda *args: samples.append(args[1:]) or start(*args)
    )
    x = torch.randn(200, 8, generator=generator(0), dtype=torch.float64)
    gradient(Robust("similarity-margin", ChiSquare(effective="4b")), x, torch.arange(200) // 4)
    ((losses, share),) = samples
    assert 0.2 * 200**2 < len(losses) <= 0.25 * 200**2
    assert share == pytest.approx(0.25)


@pytest.mark.parametrize("chosen", SETS, ids=repr)
def test_equal_losses_share_the_value(chosen):
    x = torch.eye(4, dtype=torch.float64).repeat(6, 1)
    value, slope = gradient(Robust("similarity-margin", chosen, group="sign"), x, torch.arange(24) % 4)
    assert value.isfinite()
    assert bool(slope.isfinite().all())


@pytest.mark.parametrize("chosen", [KL(0.3), KLBall(effective=9), TopK(7)], ids=repr)
def test_second_derivatives_are_those_of_the_whole(chosen, monkeypatch):
    loss = Robust("binomial", chosen)

    def penalty():
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss(x, Y), x, create_graph=True)
        slope.square().sum().backward()
        return x.grad

    result = penalty()
    monkeypatch.setattr(Robust, "compute", Loss.compute)
    monkeypatch.setattr(tiles, "WHOLE_PAIRS", 2**40)
    torch.testing.assert_close(result, penalty(), rtol=1e-8, atol=1e-11)


def test_parameters_of_the_pair_loss_get_their_gradient(monkeypatch):
    for chosen in (TopK(7), KL(0.3)):
        loss = Robust(make("margin", num_classes=7).double(), chosen)
        gradient(loss, X, Y)
        result = loss.pair_loss.beta.grad.clone()
        loss.zero_grad()
        whole(loss, monkeypatch, X, Y)
        torch.testing.assert_close(result, loss.pair_loss.beta.grad, rtol=1e-9, atol=1e-12)


def test_float32_agrees_with_float64():
    for chosen in SETS:
        loss = Robust("binomial", chosen)
        value, slope = gradient(loss, X.float(), Y)
        expected, exact_slope = gradient(loss, X, Y)
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(slope.double(), exact_slope, rtol=1e-3, atol=1e-4)
