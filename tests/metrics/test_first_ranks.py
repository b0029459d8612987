"""Ranks from the first places of rankings equal a full sort, whichever way leads to them, and take no longer way."""

from functools import cache

import numpy as np
import pytest
import torch

import kinfold
from kinfold.metrics import neighbors
from kinfold.metrics._ranking import first_ranks, scan
from kinfold.metrics._ranking.approximation import full_products
from kinfold.metrics._ranking.first_ranks import Heads
from kinfold.metrics._ranking.ordering import kth_largest
from kinfold.metrics._ranking.query_gallery import QueryGallery, prepare_rows
from kinfold.metrics._ranking.ranker import BEYOND, Depth, Ranker
from kinfold.metrics._ranking.relevance import relevance
from tests.metrics.brute_force import rankings, retrieval
from tests.metrics.spaces import KINDS, RETRIEVAL, make

DISTANCES = ["cosine", "dot", "euclidean"]
# (places found with exact scores of all candidates, share of the gallery up to which candidates are selected, columns)
WAYS = {
    "nearest neighbors": (10**9, 0.0, 1 << 16),
    "candidates": (0, 1.0, 1 << 16),
    "candidates in chunks": (0, 1.0, 128),
    "whole rows": (0, 0.0, 1 << 16),
}


def large_classes(kind):
    return make(kind, n=180, classes=4, seed=1)


@cache
def expected_ranks(kind, distance):
    x, labels = large_classes(kind)
    return [
        [place + 1 for place, j in enumerate(order) if labels[j] == labels[i]]
        for i, order in enumerate(rankings(x.numpy(), None, distance))
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_ranks(way, distance, kind, monkeypatch):
    few, part, columns = WAYS[way]
    monkeypatch.setattr(Heads, "_few", lambda self, depth: depth <= few)
    monkeypatch.setattr(first_ranks, "_PART", part)
    monkeypatch.setattr(scan, "_COLUMNS", columns)
    x, labels = large_classes(kind)
    relevant, expected = relevance(torch.tensor(labels), None), expected_ranks(kind, distance)
    with full_products(x.device):
        found = Heads(prepare_rows(x, None, distance), relevant, 1 << 24, BEYOND)
        for depth, first in [(1, 1), (7, 7), (3, 40), (40, 40), (179, 179), (1, 179)]:
            for i, row in enumerate(found.ranks(torch.arange(180), depth, first).tolist()):
                wanted = [r for r in expected[i] if r <= depth] or [r for r in expected[i][:1] if r <= first]
                assert row[: len(wanted)] == wanted
                assert all(r > depth for r in row[len(wanted) :]), "deeper ones are never wrongly near"


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", ["clustered", "duplicated", "tied", "near-ties", "zeros"])
def test_a_few_large_classes_in_a_gallery_equal_brute_force(kind, distance):
    x, labels = make(kind, n=400, classes=3)
    labels[5] = 99  # a query whose class the gallery does not have
    found = kinfold.metrics.evaluate(x[:90], labels[:90], x[90:], labels[90:], metrics=RETRIEVAL, distance=distance)
    expected = retrieval(x[:90].numpy(), labels[:90], x[90:].numpy(), labels[90:], distance)
    assert found == {name: pytest.approx(expected[name], abs=1e-12) for name in RETRIEVAL}


@pytest.mark.parametrize("d", [16, 200])
@pytest.mark.parametrize("classes", [2, 12, 60])
def test_sets_that_are_not_small_equal_brute_force(classes, d, monkeypatch):
    """Products of a set with itself are worked out once from many features on."""
    monkeypatch.setattr(kinfold.metrics._ranking.ranker, "_SMALL", 0)
    x, labels = make("clustered", n=800, d=d, classes=classes)
    x[::50] = x[1::50]  # pairs of the same row, of different classes
    names = ["recall@1", "recall@10", "precision@10", "r-precision", "map@r", "map@c", "mrr"]
    found = kinfold.metrics.evaluate(x, labels, metrics=names)
    expected = retrieval(x.numpy(), labels)
    assert found == {name: pytest.approx(expected[name], abs=1e-12) for name in names}


@pytest.mark.parametrize("names", [["recall@1"], ["recall@1", "recall@4"], ["recall@10"], ["precision@5"]])
def test_recall_looks_at_the_nearest_alone(names, monkeypatch):
    """However many relevant items there are: no row of the gallery is sorted, nor multiplied in float64."""

    def refuse(*given):
        raise AssertionError("a whole row is ranked")

    monkeypatch.setattr(Heads, "_sorted", refuse)
    monkeypatch.setattr(first_ranks, "sorted_ranks", refuse)
    x, labels = make("clustered", n=1500, d=24, classes=4)
    scored = []
    exact = QueryGallery.exact
    monkeypatch.setattr(QueryGallery, "exact", lambda self, i, j: scored.append(len(i)) or exact(self, i, j))
    found = kinfold.metrics.evaluate(x, labels, metrics=names)
    assert sum(scored) < 1500 * 40
    hits = labels[neighbors(x, k=10)[1].numpy()] == labels[:, None]
    for name, value in found.items():
        k = int(name.split("@")[1])
        assert value == pytest.approx(hits[:, :k].any(axis=1).mean() if "recall" in name else hits[:, :k].mean())


def test_exact_scores_decide_between_relevant_and_other_items_alone(monkeypatch):
    """Among items of one class the order does not matter, however close they are."""
    scored = []
    exact = QueryGallery.exact
    monkeypatch.setattr(QueryGallery, "exact", lambda self, i, j: scored.append(len(i)) or exact(self, i, j))
    monkeypatch.setattr(Heads, "_few", lambda self, depth: False)
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 8
    x = torch.tensor(10 * np.eye(8)[labels] + 1e-6 * rng.normal(size=(400, 8)), dtype=torch.float32)
    assert kinfold.metrics.evaluate(x, labels, metrics=["r-precision", "map@r"]) == {"r-precision": 1.0, "map@r": 1.0}
    assert sum(scored) == 0


@pytest.mark.parametrize("way", ["candidates", "whole rows"])
def test_no_more_memory_is_taken_than_allowed(way, monkeypatch):
    _, part, _ = WAYS[way]
    monkeypatch.setattr(first_ranks, "_PART", part)
    monkeypatch.setattr(Heads, "_few", lambda self, depth: False)
    x, labels = make("clustered", n=900, d=8, classes=3)
    largest = []
    take = scan.Scratch.take

    def noted(self, rows, columns, dtype, device):
        largest.append(rows * columns * dtype.itemsize)
        return take(self, rows, columns, dtype, device)

    monkeypatch.setattr(scan.Scratch, "take", noted)
    found = kinfold.metrics.evaluate(x, labels, metrics=["r-precision", "map@r"], memory=1 << 18)
    expected = retrieval(x.numpy(), labels)
    assert found == {name: pytest.approx(expected[name], abs=1e-12) for name in found}
    assert max(largest) <= 1 << 18


def test_the_first_relevant_item_is_looked_for_ever_deeper():
    """Every item of the first class is nearer to all of the second than to its own."""
    x = torch.cat([torch.eye(60), torch.full((60, 60), 0.1)])
    labels = torch.arange(120) // 60
    relevant = relevance(labels, None)
    ranker = Ranker(prepare_rows(x, None, "cosine"), relevant, Depth(first=10**9))
    with full_products(x.device):
        ranks = torch.cat([rows[:, 0] for _, rows in ranker.blocks(relevant.order())])
    assert ranks.tolist() == [61] * 60 + [1] * 60


@pytest.mark.parametrize("k", [1, 2, 50, 99, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kth_largest_is_that_of_a_sort(threads, dtype, k, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = torch.randn(2000, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows[:, 3], rows[5] = -torch.inf, 0.5
    before = rows.clone()
    assert torch.equal(kth_largest(rows, k), rows.sort(dim=1, descending=True).values[:, k - 1])
    assert torch.equal(kth_largest(rows[:, ::2], (k + 1) // 2), rows[:, ::2].sort(dim=1).values[:, 50 - (k + 1) // 2])
    assert torch.equal(rows, before)
