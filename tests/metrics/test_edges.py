"""Metrics at the edges of what they are given: lengths near nothing, one cluster, few steps, words for numbers."""

import numpy as np
import pytest
import torch

from kinfold.metrics import evaluate, examine, k_means, neighbors
from kinfold.metrics._ranking import scan
from kinfold.metrics._ranking.query_gallery import normalize_rows
from kinfold.metrics.agreement import ami, contingency, nmi, pairwise_f1
from tests.metrics.brute_force import rankings
from tests.metrics.spaces import make


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-10, 1e10, 1e200, 1e300])
def test_rows_of_any_length_have_a_direction(size):
    x = make("random", n=20, d=5, dtype=torch.float64)[0]
    expected = torch.nn.functional.normalize(x)
    torch.testing.assert_close(normalize_rows(x * size), expected, rtol=1e-12, atol=1e-12)
    mixed = torch.cat([x[:5] * size, x[5:], torch.zeros(1, 5, dtype=torch.float64)])
    torch.testing.assert_close(normalize_rows(mixed)[:20], expected, rtol=1e-12, atol=1e-12)
    assert not normalize_rows(mixed)[20].any()


@pytest.mark.parametrize("distance", ["dot", "euclidean"])
@pytest.mark.parametrize("size", [1e-5, 0.01, 0.2, 30.0])
def test_short_rows_have_neighbours_too(size, distance):
    x = make("random", n=60)[0] * size
    expected = np.stack([order[:59] for order in rankings(x.numpy(), None, distance)])
    assert np.array_equal(neighbors(x, k=59, distance=distance)[1].numpy(), expected)


def test_rows_without_any_length_come_in_the_order_of_their_indices():
    _, indices = neighbors(torch.zeros(4, 3), k=3, distance="dot")
    assert indices.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


@pytest.mark.parametrize("size", [7, 11, 100, 997])
def test_one_cluster_says_nothing_at_all(size):
    codes, one = torch.arange(size) % 3, torch.zeros(size, dtype=torch.int64)
    for table in (contingency(codes, one), contingency(one, codes)):
        assert nmi(table) == 0.0
        assert ami(table) == pytest.approx(0.0, abs=1e-12)
        assert 0.0 < pairwise_f1(table) < 1.0


def test_k_means_takes_the_steps_it_was_given_and_counts_them():
    x = make("random", n=200)[0].double()
    found = [k_means(x, 9, steps=steps, seed=2) for steps in range(1, 60)]
    until = next(index for index, result in enumerate(found) if result.settled)
    assert until > 3
    assert [result.steps for result in found[: until + 1]] == [*range(1, until + 2)]
    assert {result.steps for result in found[until:]} == {until + 1}
    assert torch.equal(found[0].clusters, torch.cdist(x, x[first_rows(200, 9, seed=2)]).argmin(dim=1))
    assert not torch.equal(found[0].clusters, found[1].clusters)


def first_rows(rows, clusters, seed):
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed))[:clusters]


@pytest.mark.parametrize("wrong", [np.array([["a", "b"]] * 4), np.array([[1, None]] * 4), [["1", "2"]] * 4])
def test_embeddings_that_are_no_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="embeddings must be numbers"):
        evaluate(wrong, [0, 0, 1, 1])


def test_numbers_at_the_ends_of_their_ranges():
    x, labels = make("clustered", n=80)
    found = evaluate(x, labels, metrics=["tar@far=0", "tar@far=1", "recall@1", "recall@100000", "rho@12"])
    assert found["tar@far=1"] == found["recall@100000"] == 1.0
    assert 0.0 <= found["tar@far=0"] < 1.0
    assert found["rho@12"] == pytest.approx(0.0)
    with pytest.raises(ValueError, match="none is left"):
        evaluate(x, labels, metrics=["rho@13"])
    for level in (0.0, 1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            examine(x, labels, intervals="queries", level=level)


def test_tables_of_counts_need_items():
    with pytest.raises(ValueError, match="no items"):
        contingency(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="one shape"):
        contingency(torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 2, dtype=torch.int64))


def test_complex_rows_are_refused():
    with pytest.raises(ValueError, match="real numbers"):
        evaluate(torch.ones(4, 2, dtype=torch.complex64), [0, 0, 1, 1])


def test_the_approximate_search_finds_no_more_rows_than_there_are():
    pytest.importorskip("faiss", reason="faiss is an optional extra")
    _, indices = neighbors(make("random", n=5)[0], k=100, backend="faiss")
    assert indices.shape[1] <= 5
    for i, row in enumerate(indices.tolist()):
        assert sorted(j for j in row if j >= 0) == [j for j in range(5) if j != i]


@pytest.mark.parametrize("k", [1, 2, 5, 10, 20, 30, 40, 80, 128, 400])
def test_a_gallery_in_chunks_at_every_depth(k, monkeypatch):
    """From groups of many columns to no groups at all."""
    monkeypatch.setattr(scan, "_COLUMNS", 128)
    x = make("clustered", n=460)[0]
    expected = np.stack([order[:k] for order in rankings(x[:30].numpy(), x[30:].numpy(), "cosine")])
    assert np.array_equal(neighbors(x[:30], x[30:], k=k)[1].numpy(), expected)
