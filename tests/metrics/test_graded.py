"""Metrics of degrees of relevance against loops over exact rankings."""

import math

import numpy as np
import pytest
import torch

from kinfold.metrics import evaluate, evaluate_graded
from kinfold.metrics import graded as module
from tests.metrics.brute_force import rankings

NAMES = ["ndcg@3", "ndcg@100", "hap", "map", "map@4", "recall@2", "precision@5", "r-precision", "mrr"]


def expected(order, degrees):
    """All metrics of one ranking, None if nothing is relevant."""
    r = [float(degrees[j]) for j in order]
    n = sum(value > 0 for value in r)
    if n == 0:
        return None
    values = {}
    for k in (3, 100):
        gain = sum((2**value - 1) / math.log2(rank + 1) for rank, value in enumerate(r[:k], start=1))
        best = sum((2**value - 1) / math.log2(rank + 1) for rank, value in enumerate(sorted(r)[::-1][:k], start=1))
        values[f"ndcg@{k}"] = gain / best
    values["hap"] = sum(sum(min(r[k], r[j]) for j in range(k + 1)) / (k + 1) for k in range(len(r)) if r[k] > 0) / sum(
        r
    )
    hits = [rank for rank, value in enumerate(r, start=1) if value > 0]
    precisions = [(j + 1) / rank for j, rank in enumerate(hits)]
    values["map"] = sum(precisions) / n
    values["map@4"] = sum(p for p, rank in zip(precisions, hits, strict=True) if rank <= 4) / min(n, 4)
    values["recall@2"] = float(hits[0] <= 2)
    values["precision@5"] = sum(rank <= 5 for rank in hits) / 5
    values["r-precision"] = sum(rank <= n for rank in hits) / n
    values["mrr"] = 1 / hits[0]
    return values


def problem(seed=0, queries=23, gallery=41, levels=4):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(queries, 5)).astype(np.float32), rng.normal(size=(gallery, 5)).astype(np.float32)
    relevance = rng.integers(0, levels, size=(queries, gallery)) * (rng.random((queries, gallery)) < 0.3)
    relevance[2] = 0
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(relevance)


def check(actual, order_of, relevance):
    rows = [row for i in range(len(relevance)) if (row := expected(order_of(i), relevance[i])) is not None]
    assert len(rows) == len(relevance) - 1
    assert actual == pytest.approx({name: np.mean([row[name] for row in rows]) for name in NAMES}, rel=1e-12)


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("block", [1, 10**9])
def test_against_loops_over_exact_rankings(distance, block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_ENTRIES", block)
    x, y, relevance = problem()
    orders = list(rankings(x.numpy(), y.numpy(), distance))
    check(evaluate_graded(x, relevance, y, NAMES, distance), lambda i: orders[i], relevance)
    check(evaluate_graded(x, lambda rows: relevance[rows], y, NAMES, distance), lambda i: orders[i], relevance)


def test_a_set_against_itself_leaves_the_query_out():
    x, _, relevance = problem(1, 30, 30)
    orders = [[j for j in order if j != i] for i, order in enumerate(rankings(x.numpy(), x.numpy(), "cosine"))]
    check(evaluate_graded(x, relevance, metrics=NAMES), lambda i: orders[i], relevance)


def test_queries_inside_a_larger_gallery():
    _, y, relevance = problem(2, 9, 41)
    queries = torch.tensor([4, 40, 7, 0, 13, 21, 5, 6, 30])
    orders = [
        [j for j in order if j != queries[i]]
        for i, order in enumerate(rankings(y[queries].numpy(), y.numpy(), "cosine"))
    ]
    check(evaluate_graded(y[queries], relevance, y, NAMES, exclude=queries), lambda i: orders[i], relevance)
    relevance[torch.arange(9), queries] = 3  # the relevance of a query to itself does not matter
    check(evaluate_graded(y[queries], relevance, y, NAMES, exclude=queries), lambda i: orders[i], relevance)


def test_boolean_relevance_gives_the_metrics_of_labels():
    x, _, _ = problem(3, 40)
    labels = torch.arange(40) % 7
    names = ["map", "map@5", "recall@1", "precision@3", "r-precision", "mrr"]
    same = labels[:, None] == labels
    assert evaluate_graded(x, same, metrics=names) == pytest.approx(evaluate(x, labels, metrics=names), rel=1e-12)
    assert evaluate_graded(x, same, metrics=["hap"])["hap"] == pytest.approx(
        evaluate(x, labels, metrics=["map"])["map"]
    )


def test_wrong_input():
    x, y, relevance = problem()
    for arguments, message in [
        ({"relevance": relevance[:, 1:]}, "shape"),
        ({"relevance": lambda rows: relevance[rows, 1:]}, "shape"),
        ({"relevance": -relevance - 1}, "negative"),
        ({"relevance": relevance, "metrics": ["ndgc@10"]}, "did you mean 'ndcg@10'"),
        ({"relevance": relevance, "exclude": torch.arange(3)}, "exclude"),
    ]:
        with pytest.raises(ValueError, match=message):
            evaluate_graded(x, gallery=y, **arguments)
    assert math.isnan(evaluate_graded(x, relevance * 0, y)["map"])
