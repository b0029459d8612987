"""Exact evaluation by the hyperbolic distance, against loops in the Poincare ball."""

import numpy as np
import pytest
import torch

import kinfold
from kinfold.metrics import evaluate, evaluate_graded, examine, neighbors, verify
from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics._ranking.fast_products import build_fast_products, use_full_precision
from kinfold.metrics._ranking.query_gallery import build_query_gallery
from kinfold.metrics._ranking.ranker import UNRANKED, Ranker
from kinfold.metrics._ranking.relevance import build_relevance
from kinfold.metrics.nearest_neighbors import search_exact
from kinfold.pairs import Hyperbolic
from tests.losses.references.distances import poincare
from tests.metrics._ranking.test_ranker import assert_equal_scores, by_counting  # noqa: F401 - a fixture
from tests.metrics.brute_force import rankings, retrieval
from tests.metrics.embedding_sets import RETRIEVAL, make_embeddings

# without those whose distances tie or nearly tie in exact arithmetic: the rounding of either formula decides there
KINDS = ["random", "clustered", "duplicated", "identical", "huge", "one far away"]
FAR = Hyperbolic(curvature=1.0, radius=2.9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_metrics_equal_brute_force(kind, dtype, by_counting):  # noqa: F811
    x, labels = make_embeddings(kind, dtype=dtype)
    scores = evaluate(x, labels, metrics=RETRIEVAL, distance="hyperbolic")
    assert_equal_scores(scores, retrieval(x.numpy(), labels, distance="hyperbolic"))


@pytest.mark.parametrize("kind", ["random", "duplicated"])
def test_query_and_gallery_equal_brute_force(kind):
    x, labels = make_embeddings(kind)
    scores = evaluate(x[:70], labels[:70], x[50:], labels[50:], metrics=RETRIEVAL, distance="hyperbolic")
    assert_equal_scores(scores, retrieval(x[:70].numpy(), labels[:70], x[50:].numpy(), labels[50:], "hyperbolic"))


@pytest.mark.parametrize("kind", ["random", "duplicated", "huge"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_product_gives_the_exact_ranks(kind, dtype, monkeypatch):
    monkeypatch.setattr(tuning, "COLUMNS_PER_CHUNK", 128)
    x, labels = make_embeddings(kind, n=300, classes=30, seed=1)
    query_gallery = build_query_gallery(x, None, "hyperbolic")
    relevance = build_relevance(torch.tensor(labels), None)
    orders = rankings(x.numpy(), None, "hyperbolic")
    ranker = Ranker(query_gallery, relevance, RankDepth(full=True), memory_limit=1 << 17, dtype=dtype)
    with use_full_precision(x.device):
        for which, ranks in ranker.rank_blocks(relevance.order_queries()):
            for i, row in zip(which.tolist(), ranks.tolist(), strict=True):
                expected = [rank + 1 for rank, j in enumerate(orders[i]) if labels[j] == labels[i]]
                assert [rank for rank in row if rank < UNRANKED] == expected
        _, indices = search_exact(query_gallery, 7, torch.arange(len(x)), 1 << 16, dtype)
    assert indices.tolist() == [order[:7].tolist() for order in orders]


@pytest.mark.parametrize("distance", ["hyperbolic", FAR, {"name": "hyperbolic", "curvature": 1.0, "radius": 2.9}])
def test_neighbors_return_distances(distance):
    x, _ = make_embeddings("clustered", n=60)
    numbers = (0.1, 2.3) if distance == "hyperbolic" else (1.0, 2.9)
    values, indices = neighbors(x[:9], x[9:], k=5, distance=distance)
    expected = np.array([[poincare(a, b, *numbers) for b in x[9:].double().numpy()] for a in x[:9].double().numpy()])
    np.testing.assert_allclose(values.numpy(), np.sort(expected, axis=1)[:, :5], rtol=1e-9)
    np.testing.assert_array_equal(indices.numpy(), np.argsort(expected, axis=1)[:, :5])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("distance", ["hyperbolic", FAR])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_differ_from_exact_scores_by_no_more_than_their_bound(scale, distance, dtype):
    x = scale * torch.randn(40, 24, generator=torch.Generator().manual_seed(0))
    query_gallery = build_query_gallery(x, None, distance)
    products = build_fast_products(query_gallery, dtype)
    i, j = (part.flatten() for part in torch.meshgrid(torch.arange(40), torch.arange(40), indexing="ij"))
    thresholds = query_gallery.exact_scores(i, j) + products.offset[i]
    error = products.bound_error(thresholds[:, None], i).squeeze(1)
    computed = (products.queries @ products.gallery[:40].T).double().flatten()
    assert bool(((computed - thresholds).abs() <= error).all())
    assert bool((query_gallery.exact_scores(i, i) == 0).all())


def test_verification_and_curves_use_the_same_distances():
    x, labels = make_embeddings("clustered", n=80, classes=8)
    rows = x.double().numpy()
    distances = np.array([[poincare(a, b) for b in rows] for a in rows])
    upper = np.triu_indices(len(rows), 1)
    positive = (np.asarray(labels)[:, None] == labels)[upper]
    curve = verify(x, labels, distance="hyperbolic")
    strictest = float(distances[upper][positive].min())
    assert float(curve.thresholds[0]) == pytest.approx(strictest, rel=1e-5)
    area = np.mean([(n > p) + 0.5 * (n == p) for p in distances[upper][positive] for n in distances[upper][~positive]])
    assert evaluate(x, labels, metrics=["roc-auc"], distance="hyperbolic")["roc-auc"] == pytest.approx(area, abs=1e-6)
    values = evaluate(x, labels, metrics=["opis", "eer"], distance="hyperbolic")
    assert all(np.isfinite(value) for value in values.values())


def test_graded_evaluation_ranks_by_it():
    x, labels = make_embeddings("clustered", n=90, classes=9)
    relevance = torch.tensor(np.asarray(labels)[:, None] == labels).fill_diagonal_(False)
    graded = evaluate_graded(x, relevance, metrics=["map", "recall@1"], distance="hyperbolic")
    plain = evaluate(x, labels, metrics=["map", "recall@1"], distance="hyperbolic")
    assert graded == pytest.approx(plain)


def test_clusters_and_spectra_are_those_of_the_cut_embeddings():
    x, labels = make_embeddings("clustered", n=120, classes=6)
    long = x.norm(dim=1, keepdim=True)
    cut = x * (2.3 / long).clamp(max=1.0)
    metrics = ["nmi", "rho@1"]
    expected = examine(cut, labels, metrics=metrics, distance="euclidean").values
    assert examine(x, labels, metrics=metrics, distance="hyperbolic").values == pytest.approx(expected, abs=1e-4)


def test_a_small_curvature_ranks_as_the_euclidean_distance():
    x, labels = make_embeddings("clustered")
    distance = Hyperbolic(curvature=1e-8, radius=1e3)
    expected = evaluate(x, labels, metrics=["map"], distance="euclidean")
    assert evaluate(x, labels, metrics=["map"], distance=distance) == pytest.approx(expected, abs=1e-9)


def test_other_distances_are_named():
    x, labels = make_embeddings("random")
    with pytest.raises(ValueError, match="cosine, dot, euclidean, hyperbolic, got 'snr'"):
        evaluate(x, labels, distance="snr")
    assert kinfold.pairs.Hyperbolic() == build_query_gallery(x, None, "hyperbolic").hyperbolic
