"""Squared distances of rows that nearly coincide, where the product form has lost its digits."""

import pytest
import torch
from torch.nn.functional import normalize

from kinfold import pairs
from kinfold.pairs import near_pairs
from kinfold.pairs.measures import squared_sphere_distance
from tests.problems import generator

MEASURES = {"sphere": squared_sphere_distance, "raw": pairs.squared_euclidean}


def rows(count, dim=64, spread=1.0, radius=1e-4, dtype=torch.float32):
    """`count` unit rows and their neighbors at `radius`, all within `spread` of one point."""
    center = normalize(torch.randn(1, dim, generator=generator(1), dtype=torch.float64))
    x = normalize(center + spread * normalize(torch.randn(count, dim, generator=generator(2), dtype=torch.float64)))
    y = normalize(x + radius * normalize(torch.randn(count, dim, generator=generator(3), dtype=torch.float64)))
    return x.to(dtype), y.to(dtype)


def differences(x, y):
    return (x[:, None] - y).square().sum(dim=-1)


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("spread", [1.0, 1e-3], ids=["apart", "collapsed"])
@pytest.mark.parametrize("same", [False, True])
def test_values_are_those_of_differences(name, spread, same):
    x, y = rows(20, spread=spread)
    left, right = (torch.cat([x, y]),) * 2 if same else (x, y)
    exact = differences(left.double(), right.double())
    torch.testing.assert_close(MEASURES[name](left, right).double(), exact, rtol=1e-3, atol=1e-14)


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("spread", [1.0, 1e-3], ids=["apart", "collapsed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_first_and_second_gradients_are_those_of_differences(name, spread, dtype):
    """Near ones are near to rounding of the type: 1e-4 in float32, 1e-8 in float64."""
    x, y = rows(6, spread=spread, radius=1e-4 if dtype == torch.float32 else 1e-8, dtype=dtype)
    weights = torch.rand(6, 6, generator=generator(4)).to(dtype)

    def slopes(measure, x, y):
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        value = (measure(pairs.normalize(x), pairs.normalize(y)).clamp(min=1e-30).sqrt() * weights.to(x)).sum()
        first = torch.autograd.grad(value, (x, y), create_graph=True)
        second = torch.autograd.grad(sum(part.square().sum() for part in first), (x, y))
        return [part.detach() for part in (*first, *second)]

    exact = slopes(differences, x.double(), y.double())
    for slope, expected in zip(slopes(MEASURES[name], x, y), exact, strict=True):
        error = (slope.double() - expected).norm(dim=1) / expected.norm(dim=1)
        assert float(error.max()) < 0.02


def test_many_near_pairs_are_never_gathered(monkeypatch):
    """Of a collapsed batch B x R differences of d entries would be far larger than the matrix."""
    monkeypatch.setattr(near_pairs, "gather_squared_euclidean", None)
    x, y = rows(20, spread=1e-3)
    assert squared_sphere_distance(x, y).min() > 0


def test_pairs_that_do_not_count_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(near_pairs, "gather_squared_euclidean", None)
    x, _ = rows(20)
    relation = pairs.Relation.from_labels(torch.arange(20) // 2)
    squared_sphere_distance(
        x, x, pair_filter=relation.includes
    )  # only the diagonal is near, and no pair of the relation


def test_a_zero_row_keeps_the_cosine_zero():
    x, y = rows(3, spread=1e-3)
    x[0] = 0.0
    torch.testing.assert_close(squared_sphere_distance(x, y)[0], torch.full((3,), 2.0))


@pytest.mark.parametrize("columns", [5, 64, 130])
@pytest.mark.parametrize("by_row", [False, True])
def test_near_pairs_are_listed_whatever_the_number_of_columns(columns, by_row):
    squared = torch.rand(7, columns, generator=generator(5))
    limit = torch.rand(7, 1, generator=generator(6)) / 10 if by_row else 0.05
    i, j = near_pairs.list_near(squared, limit)
    marked = torch.zeros_like(squared, dtype=torch.bool)
    marked[i, j] = True
    assert torch.equal(marked, squared < limit)
    assert len(i) == int(marked.sum())
