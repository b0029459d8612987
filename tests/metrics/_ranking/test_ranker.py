"""Retrieval metrics equal brute force in float64, on every path through the engine and on hard data."""

from functools import cache

import pytest
import torch

from kinfold.metrics import evaluate
from kinfold.metrics._ranking import ranker as ranker_module
from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics._ranking.fast_products import use_full_precision
from kinfold.metrics._ranking.full_sort import rank_by_sorting
from kinfold.metrics._ranking.product_timing import has_exact_int8_products
from kinfold.metrics._ranking.query_gallery import QueryGallery, build_query_gallery
from kinfold.metrics._ranking.ranker import UNRANKED, Ranker
from kinfold.metrics._ranking.relevance import build_relevance
from kinfold.metrics._ranking.top_ranks import TopRanker
from tests.metrics.brute_force import rankings, retrieval
from tests.metrics.embedding_sets import KINDS, RETRIEVAL, make_embeddings

PATHS = [
    "bfloat16",
    "float32",
    "int8",
    "float32 in chunks",
    "bfloat16 in chunks",
    "int8 in chunks",
    "bfloat16 uneven",
    "int8 uneven",
    "sorting",
]
DTYPES = {"bfloat16": torch.bfloat16, "int8": torch.int8}
DISTANCES = ["cosine", "dot", "euclidean"]


@pytest.fixture
def by_counting(monkeypatch):
    """Rank small sets as large ones, by counting (test_top_ranks.py tests the other way)."""
    monkeypatch.setattr(tuning, "SMALL_GALLERY", 0)
    monkeypatch.setattr(tuning, "NEAREST_DEPTH", 0)
    monkeypatch.setattr(tuning, "NEAREST_DEPTH_OF_FEW", 0)


def assert_equal_scores(scores, expected):
    for name in RETRIEVAL:
        assert scores[name] == pytest.approx(expected[name], abs=1e-12), name


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_metrics_equal_brute_force(kind, distance, dtype, by_counting):
    if dtype == torch.float64 and kind in ("tied", "near-ties", "collapsed") and distance == "cosine":
        pytest.skip("normalized float64 rows tie only up to the rounding of one sum or another")
    x, labels = make_embeddings(kind, dtype=dtype)
    before = x.clone()
    scores = evaluate(x, labels, metrics=RETRIEVAL, distance=distance)
    assert_equal_scores(scores, retrieval(x.numpy(), labels, distance=distance))
    assert torch.equal(x, before)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", ["random", "duplicated", "tied", "near-ties", "zeros"])
def test_query_and_gallery_equal_brute_force(kind, distance, by_counting):
    x, labels = make_embeddings(kind)
    scores = evaluate(x[:70], labels[:70], x[50:], labels[50:], metrics=RETRIEVAL, distance=distance)
    assert_equal_scores(scores, retrieval(x[:70].numpy(), labels[:70], x[50:].numpy(), labels[50:], distance))


def make_many_classes(kind):
    return make_embeddings(kind, n=420, classes=40, seed=1)


@cache
def exact_ranks(kind, distance):
    """(Q, R) by brute force, UNRANKED where there is no item."""
    x, labels = make_many_classes(kind)
    rows = []
    for i, order in enumerate(rankings(x.numpy(), None, distance)):
        rows.append([position + 1 for position, j in enumerate(order) if labels[j] == labels[i]])
    width = max(map(len, rows))
    return torch.tensor([row + [UNRANKED] * (width - len(row)) for row in rows])


# int8 products cannot hold squared lengths
PATHS_AND_DISTANCES = [(p, d) for p in PATHS for d in DISTANCES if "int8" not in p or d != "euclidean"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("path", "distance"), PATHS_AND_DISTANCES)
def test_every_path_gives_the_same_ranks(path, distance, kind, monkeypatch):
    if "int8" in path and not has_exact_int8_products():
        pytest.skip("this processor has no exact int8 products")
    x, labels = make_many_classes(kind)
    query_gallery = build_query_gallery(x, None, distance)
    relevance = build_relevance(torch.tensor(labels), None)
    if "uneven" in path:
        monkeypatch.setattr(tuning, "MAX_LIST_PADDING", 0)
        monkeypatch.setattr(tuning, "DENSE_GROUPS", 2.0)
    if path == "sorting":
        monkeypatch.setattr(tuning, "MIN_RELEVANT_FOR_TOP", 0)
    if "chunks" in path:
        monkeypatch.setattr(tuning, "COLUMNS_PER_CHUNK", 128)
        monkeypatch.setattr(tuning, "GROUPS_PER_PASS", 999)
        monkeypatch.setattr(tuning, "PAIRS_PER_DECISION", 40_000)
    dtype = DTYPES.get(path.split()[0], torch.float32)
    expected = exact_ranks(kind, distance)
    for depth in (
        RankDepth(full=True),
        RankDepth(5),
        RankDepth(beyond_relevant=0),
        RankDepth(2, first=6),
        RankDepth(first=10**9),
    ):
        ranker = Ranker(query_gallery, relevance, depth, memory_limit=1 << 17, dtype=dtype)
        with use_full_precision(x.device):
            for which, ranks in ranker.rank_blocks(relevance.order_queries()):
                for i, row in zip(which.tolist(), ranks.tolist(), strict=True):
                    want = [r for r in expected[i].tolist() if r < UNRANKED]
                    limit = 10**9 if depth.full else max(1, depth.fixed, len(want) if depth.beyond_relevant == 0 else 0)
                    reached = [r for r in want if r <= limit or (r == want[0] and r <= depth.first)]
                    assert row[: len(reached)] == reached
                    # deeper ranks are missing, but never too small
                    assert all(r > limit for r in row[len(reached) :])


def test_large_classes_are_ranked_by_the_top():
    x, labels = make_embeddings("clustered", n=900, classes=2)
    scores = evaluate(x, labels, metrics=RETRIEVAL)
    assert_equal_scores(scores, retrieval(x.numpy(), labels))


def test_a_larger_set_is_counted_not_sorted(monkeypatch, by_counting):
    monkeypatch.setattr(TopRanker, "rank", None)  # calling either would fail
    monkeypatch.setattr(ranker_module, "rank_by_sorting", None)
    x, labels = make_embeddings("clustered", n=3000, d=32, classes=500)
    scores = evaluate(x, labels, metrics=["recall@1", "r-precision", "map@r", "map@1000", "mrr"])
    expected = retrieval(x.numpy(), labels)
    for name, value in scores.items():
        assert value == pytest.approx(expected[name], abs=1e-12)


def test_crowded_rows_are_sorted_instead(monkeypatch, by_counting):
    monkeypatch.setattr(tuning, "MAX_CANDIDATE_SHARE", 1e-9)
    x, labels = make_embeddings("random", n=3000, classes=600)
    calls = []
    monkeypatch.setattr(ranker_module, "rank_by_sorting", lambda *a: calls.append(1) or rank_by_sorting(*a))
    scores = evaluate(x, labels, metrics=["map"])
    assert calls
    assert scores["map"] == pytest.approx(retrieval(x.numpy(), labels)["map"], abs=1e-12)


@pytest.mark.parametrize("kind", ["identical", "duplicated", "tied", "zeros"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_only_runs_of_different_rows_need_exact_scores(kind, distance, monkeypatch):
    """Equal rows tie without any score."""
    monkeypatch.setattr(tuning, "MIN_RELEVANT_FOR_TOP", 0)
    x, labels = make_embeddings(kind)
    scored = []
    original = QueryGallery.exact_scores
    monkeypatch.setattr(QueryGallery, "exact_scores", lambda self, i, j: scored.append(len(i)) or original(self, i, j))
    assert_equal_scores(
        evaluate(x, labels, metrics=RETRIEVAL, distance=distance),
        retrieval(x.numpy(), labels, distance=distance),
    )
    if kind == "identical":
        assert sum(scored) == 0


def test_thresholds_may_be_computed_in_pieces(monkeypatch, by_counting):
    monkeypatch.setattr(tuning, "THRESHOLD_ENTRIES", 500)
    x, labels = make_embeddings("clustered")
    for distance in DISTANCES:
        scores = evaluate(x, labels, metrics=RETRIEVAL, distance=distance)
        assert_equal_scores(scores, retrieval(x.numpy(), labels, distance=distance))
        scores = evaluate(x[:90], labels[:90], x[90:], labels[90:], metrics=RETRIEVAL, distance=distance)
        assert_equal_scores(scores, retrieval(x[:90].numpy(), labels[:90], x[90:].numpy(), labels[90:], distance))


def record_products(monkeypatch, speeds, x, labels, seconds=None):
    """Ranks where products have these speeds, and by which products the blocks were ranked one after the other."""
    monkeypatch.setattr(ranker_module, "time_products", lambda device: speeds)
    monkeypatch.setattr(tuning, "SMALL_GALLERY", 0)
    taken = []
    original = Ranker._rank_by_counting

    def record(self, which, items, valid, exclude, dtype):
        taken.append(dtype)
        ranks = original(self, which, items, valid, exclude, dtype)
        if seconds is not None:
            clock[0] += seconds[dtype] * len(which)
        return ranks

    clock = [0.0]
    monkeypatch.setattr(Ranker, "_rank_by_counting", record)
    if seconds is not None:
        monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    # so little memory that there are many blocks
    scores = evaluate(x, labels, metrics=["recall@1", "recall@10", "r-precision", "map@r"], memory_limit=1 << 19)
    return scores, taken


@pytest.mark.parametrize("best", [torch.int8, torch.bfloat16, torch.float32])
def test_the_fastest_products_are_found_and_used(best, monkeypatch):
    if not has_exact_int8_products():
        pytest.skip("this processor has no exact int8 products")
    x, labels = make_embeddings("clustered", n=1500, d=16, classes=300)
    speeds = {torch.int8: 1e-12, torch.bfloat16: 2e-12, torch.float32: 3e-12}
    seconds = {dtype: 1e-3 if dtype == best else 2e-3 for dtype in speeds}
    scores, taken = record_products(monkeypatch, speeds, x, labels, seconds)
    assert taken[:6] == [dtype for dtype in speeds for _ in range(2)]
    assert len(taken) > 8
    assert set(taken[6:]) == {best}
    expected = retrieval(x.numpy(), labels)
    assert scores == {name: pytest.approx(expected[name], abs=1e-12) for name in scores}


def test_products_that_take_longer_than_all_of_another_are_not_tried(monkeypatch):
    if not has_exact_int8_products():
        pytest.skip("this processor has no exact int8 products")
    x, labels = make_embeddings("clustered", n=1500, d=16, classes=300)
    one_row = 1500 * 16  # multiplications for a query
    speeds = {torch.int8: 1e-12, torch.bfloat16: 1e-3 / one_row / 1.1, torch.float32: 1.0}
    _, taken = record_products(monkeypatch, speeds, x, labels, dict.fromkeys(speeds, 1e-3))
    assert set(taken) == {torch.int8}


def test_deep_ranks_and_squared_distances_do_not_use_int8(monkeypatch):
    speeds = {torch.int8: 1e-12, torch.float32: 1e-12}
    monkeypatch.setattr(ranker_module, "time_products", lambda device: speeds)
    x, labels = make_embeddings("clustered", n=400, d=16, classes=80)
    relevance = build_relevance(torch.tensor(labels), None)
    for distance, depth, expected in [
        ("cosine", RankDepth(10), [torch.int8, torch.float32]),
        ("dot", RankDepth(10), [torch.int8, torch.float32]),
        ("euclidean", RankDepth(10), [torch.float32]),
        ("cosine", RankDepth(300), [torch.float32]),
        ("cosine", RankDepth(full=True), [torch.float32]),
    ]:
        assert Ranker(build_query_gallery(x, None, distance), relevance, depth)._choices == expected


@pytest.mark.skipif(not has_exact_int8_products(), reason="this processor has no exact int8 products")
def test_queries_that_are_tiny_beside_the_gallery_are_ranked_by_int8_products_too():
    x, labels = make_embeddings("clustered", n=300, d=16, classes=60)
    x = x * torch.logspace(-44, 3, 300)[torch.randperm(300, generator=torch.Generator().manual_seed(0)), None]
    relevance = build_relevance(torch.tensor(labels), None)
    expected = [
        [position + 1 for position, j in enumerate(order) if labels[j] == labels[i]]
        for i, order in enumerate(rankings(x.numpy(), None, "dot"))
    ]
    ranker = Ranker(build_query_gallery(x, None, "dot"), relevance, RankDepth(full=True), dtype=torch.int8)
    with use_full_precision(x.device):
        for which, ranks in ranker.rank_blocks(relevance.order_queries()):
            for i, row in zip(which.tolist(), ranks.tolist(), strict=True):
                assert row[: len(expected[i])] == expected[i]
