"""Losses that need whole classes are computed from rows sorted by class, with the results of the whole matrix."""

from itertools import pairwise

import pytest
import torch

from kinfold.dro import KL, ChiSquare, KLBall, Robust, TopK
from kinfold.losses import create, tiles
from tests.problems import batch, generator, gradient

X, LABELS = batch(93, sizes=(5, 3, 1, 4, 6, 2))
ORDER = torch.randperm(len(X), generator=generator(2))
X, LABELS = X[ORDER], LABELS[ORDER]  # not sorted, and classes of unequal sizes
EQUAL = LABELS[:, None] == LABELS[None, :]
SETS = {"kl": KL(0.3), "topk": TopK(7), "chi2": ChiSquare(effective=9), "ball": KLBall(effective=9)}


@pytest.fixture(params=[1, 60, 2**40])
def tile_pairs(request, monkeypatch):
    """One class at a time, a few classes at a time, all at once."""
    monkeypatch.setattr(tiles, "MIN_ROWS", 1)
    monkeypatch.setattr(tiles, "TILE_PAIRS", request.param)
    monkeypatch.setattr(tiles, "WHOLE_PAIRS", request.param)
    return request.param


@pytest.mark.parametrize("angle", [30.0, 45.0, 85.0])  # exponentials of the last one cannot be multiplied
def test_angular_equals_one_triplet_at_a_time(angle, tile_pairs):
    loss = create("angular", angle=angle)
    result = gradient(loss, X, LABELS)
    # a matrix of pairs does not say what the classes are: each positive is compared with all negatives
    torch.testing.assert_close(result, gradient(loss, X, relation=EQUAL), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4), (5, 3), (6,), (1, 1, 1)])
def test_angular_with_regular_and_with_few_classes(sizes, tile_pairs):
    x, labels = batch(94, sizes=sizes)
    result = gradient(create("angular"), x, labels)
    expected = gradient(create("angular"), x, relation=labels[:, None] == labels[None, :])
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-11)


def test_angular_with_one_drawn_positive_uses_the_drawn_one(tile_pairs):
    results = []
    for options in ({"labels": LABELS}, {"relation": EQUAL}):
        loss = create("angular", positives="one", generator=generator(5))
        results.append(gradient(loss, X, **options))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-11)
    assert results[0][0] != create("angular")(X, LABELS)


def test_angular_of_a_zero_embedding_is_that_of_the_whole_matrix(tile_pairs):
    x = X.clone()
    x[3] = 0.0
    expected = gradient(create("angular"), x, relation=EQUAL)
    torch.testing.assert_close(gradient(create("angular"), x, LABELS), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("chosen", SETS)
@pytest.mark.parametrize("drop", [False, True])
def test_groups_of_classes_equal_a_loop_over_classes(chosen, drop, tile_pairs):
    loss = Robust("similarity-margin", SETS[chosen], group="class", drop_zero_losses=drop)
    x = X.clone().requires_grad_()
    values = create("similarity-margin", reduction="none")(x, LABELS)
    pairs = ~torch.eye(len(X), dtype=torch.bool)
    pairs = pairs & (values.detach() != 0) if drop else pairs
    groups = [(values[rows][pairs[rows]]) for rows in (label == LABELS for label in LABELS.unique())]
    expected = torch.stack([SETS[chosen].value(group) if len(group) else group.sum() for group in groups]).mean()
    (slope,) = torch.autograd.grad(expected, x)
    y = X.clone().requires_grad_()
    value = loss(y, LABELS)
    value.backward()
    torch.testing.assert_close((value, y.grad), (expected, slope), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("options", ["references", "ids", "references with ids"])
def test_groups_of_classes_with_references_and_ids(options, tile_pairs, monkeypatch):
    loss = Robust("similarity-margin", KL(0.3), group="class")
    items = torch.arange(len(X)) % 13  # some items occur twice
    arguments = {}
    if "references" in options:
        arguments |= {"ref_embeddings": X[4:], "ref_labels": LABELS[4:]}
    if "ids" in options:
        arguments["ids"] = items
    if options == "references with ids":
        arguments["ref_ids"] = items[4:]
    result = gradient(loss, X, LABELS, **arguments)
    columns = slice(4 if "references" in options else 0, None)
    same = items[:, None] == items[None, columns] if "ids" in options else torch.zeros_like(EQUAL[:, columns])
    if options == "ids" or "references" not in options:
        same = same | torch.eye(len(X), dtype=torch.bool)
    values = create("similarity-margin", reduction="none")(X, LABELS, **arguments)
    groups = [values[rows][~same[rows]] for rows in (label == LABELS for label in LABELS.unique())]
    torch.testing.assert_close(loss(X, LABELS, **arguments), torch.stack([KL(0.3).value(g) for g in groups]).mean())
    loss.whole_classes = loss.supports_chunks = False  # the whole matrix, not sorted
    torch.testing.assert_close(result, gradient(loss, X, LABELS, **arguments), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", [create("angular"), Robust("binomial", KL(0.3), group="class")], ids=["angular", "kl"])
def test_second_derivatives(loss, tile_pairs):
    x, labels = X[:8].clone().requires_grad_(), LABELS[:8]
    torch.autograd.gradgradcheck(lambda y: loss(y, labels), x, atol=1e-6)


def test_classes_are_not_cut():
    sizes = [30, 50, 10, 200, 64, 1]
    plan = tiles.plan_classes(sizes * 4, 16_384)
    ends = {0, *torch.tensor(sizes * 4).cumsum(0).tolist()}
    assert all(tile.rows.start in ends and tile.rows.stop in ends for tile in plan)
    assert [plan[0].rows.start, plan[-1].rows.stop] == [0, sum(sizes) * 4]
    assert all(a.rows.stop == b.rows.start for a, b in pairwise(plan))
    assert len(plan) > 8
