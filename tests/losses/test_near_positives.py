"""Positives that nearly coincide: float32 gradients agree with float64, in every form in which losses are computed."""

import copy

import pytest
import torch
from benchmarks.precision import gradient, make, mean_cosine, problem, settings
from torch.nn.functional import cosine_similarity, normalize

import kinfold
from kinfold.losses import tiles
from tests.problems import generator

SETTINGS = settings([])
# what is measured by a distance and takes its root, where a small distance divides
ROOTS = [
    "contrastive",
    "triplet (squared=False, margin=2)",
    "margin (beta=0.1)",
    "ranked-list (margin=1.2)",
    "hap2s (margin=2)",
    "lifted (oh-song)",
    "generalized-lifted",
    "dro-kl-grouped (contrastive)",
]


def agreement(title, x, y, **arguments):
    """The mean cosine between float32 and float64 gradients of x, (B, d)."""
    name, options, _ = SETTINGS[title]
    single = make(name, options)
    double = copy.deepcopy(single).double()

    def slope(loss, dtype):
        leaf = x.to(dtype, copy=True).requires_grad_()
        moved = {key: value.to(dtype) if value.is_floating_point() else value for key, value in arguments.items()}
        return torch.autograd.grad(loss(leaf, y, **moved), leaf)[0].double()

    exact = slope(double, torch.float64)
    assert bool((exact.norm(dim=1) > 0).all())
    return float(cosine_similarity(slope(single, torch.float32), exact, dim=1).mean())


def test_every_registered_loss_has_a_setting():
    """Left out are losses that choose: among 32 pairs at one distance, or two equal items, rounding decides."""
    assert {name for name, _, _ in SETTINGS.values()} == set(kinfold.list("losses")) - {"dro-max", "facility-location"}


@pytest.mark.parametrize("radius", [1e-2, 4e-4, 1e-4])
@pytest.mark.parametrize("title", SETTINGS)
def test_gradient_of_nearly_equal_positives_agrees_with_float64(title, radius):
    assert mean_cosine(*SETTINGS[title], radius) > 0.99


@pytest.mark.parametrize("title", [title for title in ROOTS if "oh-song" not in title])
def test_in_row_chunks(title, monkeypatch):
    monkeypatch.setattr(tiles, "MIN_ROWS", 1)
    monkeypatch.setattr(tiles, "TILE_PAIRS", 500)
    monkeypatch.setattr(tiles, "WHOLE_PAIRS", 500)
    assert mean_cosine(*SETTINGS[title], 1e-4) > 0.99


@pytest.mark.parametrize("title", [title for title in ROOTS if "oh-song" not in title])
def test_against_a_reference_set(title):
    x, y = problem(make(*SETTINGS[title][:2]), 1e-4)
    half = len(x) // 2
    assert agreement(title, x[:half], y[:half], ref_embeddings=x[half:], ref_labels=y[half:]) > 0.99


@pytest.mark.parametrize("title", ROOTS)
def test_in_a_collapsed_batch(title):
    """All 64 rows within 3e-4 of each other, so that every pair is a near one."""
    center = normalize(torch.randn(1, 128, generator=generator(1)))
    x = center + 2e-4 * normalize(torch.randn(64, 128, generator=generator(2)))
    assert agreement(title, x, torch.arange(64) // 2) > 0.99


def test_embeddings_far_from_length_one():
    x, y = problem(make("generalized-lifted", {}), 1e-4)
    assert agreement("generalized-lifted", x * 100, y) > 0.99


@pytest.mark.parametrize("title", [title for title in ROOTS if title != "generalized-lifted"])  # of raw embeddings
def test_pair_weights_agree_with_float64(title):
    name, options, _ = SETTINGS[title]
    single = make(name, options)
    x, y = problem(single, 1e-4)
    exact = copy.deepcopy(single).double().pair_weights(x.double(), y)
    positives = (y[:, None] == y) & ~torch.eye(len(y), dtype=torch.bool)
    torch.testing.assert_close(single.pair_weights(x, y)[positives].double(), exact[positives], rtol=1e-2, atol=0.0)


def test_equal_positives_have_no_gradient_and_no_nan():
    for title in ROOTS:
        loss = make(*SETTINGS[title][:2])
        x, y = problem(loss, 0.0)
        slope = gradient(loss, torch.cat([x[:32], x[:32]]), y)
        assert bool(slope.isfinite().all()), title


@pytest.mark.parametrize("radius", [1e-2, 4e-4, 1e-4])
def test_soft_triple_pushes_nearly_equal_centers_apart(radius):
    loss = kinfold.losses.create("soft-triple", num_classes=32, dim=128, centers=2)
    first = normalize(torch.randn(32, 128, generator=generator(3), dtype=torch.float64))
    second = normalize(first + radius * normalize(torch.randn(32, 128, generator=generator(4), dtype=torch.float64)))
    with torch.no_grad():
        loss.proxies.copy_(torch.stack([first, second], dim=1))
    slopes = [torch.autograd.grad(each.regularizer(), each.proxies)[0].double() for each in (loss, _double(loss))]
    assert float(cosine_similarity(*slopes, dim=-1).mean()) > 0.99


def _double(loss):
    return copy.deepcopy(loss).double()
