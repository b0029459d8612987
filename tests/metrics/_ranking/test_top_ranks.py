"""Ranks from the top of rankings equal a full sort, whichever way leads to them."""

from functools import cache

import numpy as np
import pytest
import torch

from kinfold.metrics import evaluate, neighbors
from kinfold.metrics._ranking import scan, top_ranks, tuning
from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics._ranking.fast_products import use_full_precision
from kinfold.metrics._ranking.query_gallery import QueryGallery, build_query_gallery
from kinfold.metrics._ranking.ranker import UNRANKED, Ranker
from kinfold.metrics._ranking.relevance import build_relevance
from kinfold.metrics._ranking.top_ranks import TopRanker
from tests.metrics.brute_force import rankings, retrieval
from tests.metrics.embedding_sets import KINDS, RETRIEVAL, make_embeddings

DISTANCES = ["cosine", "dot", "euclidean"]
# (depth up to which neighbors are searched, share of the gallery up to which candidates are selected, chunk columns)
WAYS = {
    "nearest neighbors": (10**9, 0.0, 1 << 16),
    "candidates": (0, 1.0, 1 << 16),
    "candidates in chunks": (0, 1.0, 128),
    "whole rows": (0, 0.0, 1 << 16),
}


def make_large_classes(kind):
    return make_embeddings(kind, n=180, classes=4, seed=1)


@cache
def expected_ranks(kind, distance):
    x, labels = make_large_classes(kind)
    return [
        [position + 1 for position, j in enumerate(order) if labels[j] == labels[i]]
        for i, order in enumerate(rankings(x.numpy(), None, distance))
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_ranks(way, distance, kind, monkeypatch):
    few, part, columns = WAYS[way]
    monkeypatch.setattr(TopRanker, "_searches_neighbors", lambda self, depth: depth <= few)
    monkeypatch.setattr(tuning, "SELECTED_SHARE", part)
    monkeypatch.setattr(tuning, "COLUMNS_PER_CHUNK", columns)
    x, labels = make_large_classes(kind)
    relevance, expected = build_relevance(torch.tensor(labels), None), expected_ranks(kind, distance)
    with use_full_precision(x.device):
        ranker = TopRanker(build_query_gallery(x, None, distance), relevance, 1 << 24, UNRANKED)
        for depth, first in [(1, 1), (7, 7), (3, 40), (40, 40), (179, 179), (1, 179)]:
            for i, row in enumerate(ranker.rank(torch.arange(180), depth, first).tolist()):
                wanted = [r for r in expected[i] if r <= depth] or [r for r in expected[i][:1] if r <= first]
                assert row[: len(wanted)] == wanted
                assert all(r > depth for r in row[len(wanted) :]), "deeper ranks are never too small"


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", ["clustered", "duplicated", "tied", "near-ties", "zeros"])
def test_a_few_large_classes_in_a_gallery_equal_brute_force(kind, distance):
    x, labels = make_embeddings(kind, n=400, classes=3)
    labels[5] = 99  # a query whose class the gallery does not have
    scores = evaluate(x[:90], labels[:90], x[90:], labels[90:], metrics=RETRIEVAL, distance=distance)
    expected = retrieval(x[:90].numpy(), labels[:90], x[90:].numpy(), labels[90:], distance)
    assert scores == {name: pytest.approx(expected[name], abs=1e-12) for name in RETRIEVAL}


@pytest.mark.parametrize("d", [16, 200])
@pytest.mark.parametrize("classes", [2, 12, 60])
def test_sets_that_are_not_small_equal_brute_force(classes, d, monkeypatch):
    """With many features the products of a set with itself are computed beforehand."""
    monkeypatch.setattr(tuning, "SMALL_GALLERY", 0)
    x, labels = make_embeddings("clustered", n=800, d=d, classes=classes)
    x[::50] = x[1::50]  # pairs of the same row, of different classes
    names = ["recall@1", "recall@10", "precision@10", "r-precision", "map@r", "map@c", "mrr"]
    scores = evaluate(x, labels, metrics=names)
    expected = retrieval(x.numpy(), labels)
    assert scores == {name: pytest.approx(expected[name], abs=1e-12) for name in names}


@pytest.mark.parametrize("names", [["recall@1"], ["recall@1", "recall@4"], ["recall@10"], ["precision@5"]])
def test_recall_needs_the_nearest_neighbors_only(names, monkeypatch):
    """However many relevant items there are: no row of the gallery is sorted, nor multiplied in float64."""

    def refuse(*arguments):
        raise AssertionError("a whole row is ranked")

    monkeypatch.setattr(TopRanker, "_rank_by_sorted_rows", refuse)
    monkeypatch.setattr(top_ranks, "rank_by_sorting", refuse)
    x, labels = make_embeddings("clustered", n=1500, d=24, classes=4)
    scored = []
    exact = QueryGallery.exact_scores
    monkeypatch.setattr(QueryGallery, "exact_scores", lambda self, i, j: scored.append(len(i)) or exact(self, i, j))
    scores = evaluate(x, labels, metrics=names)
    assert sum(scored) < 1500 * 40
    hits = labels[neighbors(x, k=10)[1].numpy()] == labels[:, None]
    for name, value in scores.items():
        k = int(name.split("@")[1])
        assert value == pytest.approx(hits[:, :k].any(axis=1).mean() if "recall" in name else hits[:, :k].mean())


def test_exact_scores_decide_between_relevant_and_other_items_alone(monkeypatch):
    """Among items of one class the order does not matter, however close they are."""
    scored = []
    exact = QueryGallery.exact_scores
    monkeypatch.setattr(QueryGallery, "exact_scores", lambda self, i, j: scored.append(len(i)) or exact(self, i, j))
    monkeypatch.setattr(TopRanker, "_searches_neighbors", lambda self, depth: False)
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 8
    x = torch.tensor(10 * np.eye(8)[labels] + 1e-6 * rng.normal(size=(400, 8)), dtype=torch.float32)
    assert evaluate(x, labels, metrics=["r-precision", "map@r"]) == {"r-precision": 1.0, "map@r": 1.0}
    assert sum(scored) == 0


@pytest.mark.parametrize("way", ["candidates", "whole rows"])
def test_products_stay_within_the_memory_limit(way, monkeypatch):
    _, part, _ = WAYS[way]
    monkeypatch.setattr(tuning, "SELECTED_SHARE", part)
    monkeypatch.setattr(TopRanker, "_searches_neighbors", lambda self, depth: False)
    x, labels = make_embeddings("clustered", n=900, d=8, classes=3)
    largest = []
    take = scan.BufferPool.take

    def record(self, rows, columns, dtype, device):
        largest.append(rows * columns * dtype.itemsize)
        return take(self, rows, columns, dtype, device)

    monkeypatch.setattr(scan.BufferPool, "take", record)
    scores = evaluate(x, labels, metrics=["r-precision", "map@r"], memory_limit=1 << 18)
    expected = retrieval(x.numpy(), labels)
    assert scores == {name: pytest.approx(expected[name], abs=1e-12) for name in scores}
    assert max(largest) <= 1 << 18


def test_the_first_relevant_item_is_searched_deeper_and_deeper():
    """Every item of the first class is nearer to the second class than to the first."""
    x = torch.cat([torch.eye(60), torch.full((60, 60), 0.1)])
    labels = torch.arange(120) // 60
    relevance = build_relevance(labels, None)
    ranker = Ranker(build_query_gallery(x, None, "cosine"), relevance, RankDepth(first=10**9))
    with use_full_precision(x.device):
        ranks = torch.cat([rows[:, 0] for _, rows in ranker.rank_blocks(relevance.order_queries())])
    assert ranks.tolist() == [61] * 60 + [1] * 60
