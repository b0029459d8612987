"""Retrieval metrics equal brute force in float64, on every path through the code and on hard data."""

from functools import cache

import pytest
import torch

import kinfold
from kinfold.metrics._ranking import approximation, counting, scan
from kinfold.metrics._ranking import ranker as ranks_module
from kinfold.metrics._ranking.approximation import full_products
from kinfold.metrics._ranking.product_speed import whole_number_products
from kinfold.metrics._ranking.query_gallery import QueryGallery, prepare_rows
from kinfold.metrics._ranking.ranker import BEYOND, Depth, Ranker
from kinfold.metrics._ranking.relevance import relevance
from tests.metrics.brute_force import rankings, retrieval
from tests.metrics.spaces import KINDS, RETRIEVAL, make

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
    """Small sets go the way of large ones, which look for the place of each relevant item (tests/metrics/test_heads.py
    is about the other way)."""
    monkeypatch.setattr(ranks_module, "_SMALL", 0)
    monkeypatch.setattr(ranks_module, "_NEAREST", 0)
    monkeypatch.setattr(ranks_module, "_NEAREST_OF_FEW", 0)


def agree(found, expected):
    for name in RETRIEVAL:
        assert found[name] == pytest.approx(expected[name], abs=1e-12), name


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_metrics_equal_brute_force(kind, distance, dtype, by_counting):
    if dtype == torch.float64 and kind in ("tied", "near-ties", "collapsed") and distance == "cosine":
        pytest.skip("normalised float64 rows tie only up to the rounding of one sum or another")
    x, labels = make(kind, dtype=dtype)
    before = x.clone()
    found = kinfold.metrics.evaluate(x, labels, metrics=RETRIEVAL, distance=distance)
    agree(found, retrieval(x.numpy(), labels, distance=distance))
    assert torch.equal(x, before)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", ["random", "duplicated", "tied", "near-ties", "zeros"])
def test_query_and_gallery_equal_brute_force(kind, distance, by_counting):
    x, labels = make(kind)
    found = kinfold.metrics.evaluate(x[:70], labels[:70], x[50:], labels[50:], metrics=RETRIEVAL, distance=distance)
    agree(found, retrieval(x[:70].numpy(), labels[:70], x[50:].numpy(), labels[50:], distance))


def many(kind):
    return make(kind, n=420, classes=40, seed=1)


@cache
def exact_ranks(kind, distance):
    """(Q, R) by brute force, BEYOND where there is no item."""
    x, labels = many(kind)
    found = []
    for i, order in enumerate(rankings(x.numpy(), None, distance)):
        found.append([place + 1 for place, j in enumerate(order) if labels[j] == labels[i]])
    width = max(map(len, found))
    return torch.tensor([row + [BEYOND] * (width - len(row)) for row in found])


# whole numbers have no room for squared lengths
WAYS = [(p, d) for p in PATHS for d in DISTANCES if "int8" not in p or d != "euclidean"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("path", "distance"), WAYS)
def test_every_path_gives_the_same_ranks(path, distance, kind, monkeypatch):
    if "int8" in path and not whole_number_products():
        pytest.skip("this processor has no exact products of whole numbers")
    x, labels = many(kind)
    comparison = prepare_rows(x, None, distance)
    relevant = relevance(torch.tensor(labels), None)
    if "uneven" in path:
        monkeypatch.setattr(counting, "_EVEN", 0)
        monkeypatch.setattr(scan, "_DENSE", 2.0)
    if path == "sorting":
        monkeypatch.setattr(ranks_module, "_MANY", 0)
    if "chunks" in path:
        monkeypatch.setattr(scan, "_COLUMNS", 128)
        monkeypatch.setattr(scan, "_GROUPS_AT_ONCE", 999)
        monkeypatch.setattr(counting, "_PAIRS_AT_ONCE", 40_000)
    dtype = DTYPES.get(path.split()[0], torch.float32)
    expected = exact_ranks(kind, distance)
    for depth in (Depth(full=True), Depth(5), Depth(beside_relevant=0), Depth(2, first=6), Depth(first=10**9)):
        ranker = Ranker(comparison, relevant, depth, memory=1 << 17, dtype=dtype)
        with full_products(x.device):
            for which, found in ranker.blocks(relevant.order()):
                for i, row in zip(which.tolist(), found.tolist(), strict=True):
                    want = [r for r in expected[i].tolist() if r < BEYOND]
                    limit = 10**9 if depth.full else max(1, depth.fixed, len(want) if depth.beside_relevant == 0 else 0)
                    reached = [r for r in want if r <= limit or (r == want[0] and r <= depth.first)]
                    assert row[: len(reached)] == reached
                    # deeper ones are unknown, but never wrongly near
                    assert all(r > limit for r in row[len(reached) :])


def test_large_classes_go_by_the_first_places():
    x, labels = make("clustered", n=900, classes=2)
    found = kinfold.metrics.evaluate(x, labels, metrics=RETRIEVAL)
    agree(found, retrieval(x.numpy(), labels))


def test_a_larger_set_is_counted_not_sorted(monkeypatch, by_counting):
    monkeypatch.setattr(ranks_module.Heads, "ranks", None)  # would fail, and so would this
    monkeypatch.setattr(ranks_module, "sorted_ranks", None)
    x, labels = make("clustered", n=3000, d=32, classes=500)
    found = kinfold.metrics.evaluate(x, labels, metrics=["recall@1", "r-precision", "map@r", "map@1000", "mrr"])
    expected = retrieval(x.numpy(), labels)
    for name, value in found.items():
        assert value == pytest.approx(expected[name], abs=1e-12)


def test_crowded_rows_are_sorted_instead(monkeypatch, by_counting):
    monkeypatch.setattr(ranks_module, "_CROWDED", 1e-9)
    x, labels = make("random", n=3000, classes=600)
    calls = []
    original = ranks_module.sorted_ranks
    monkeypatch.setattr(ranks_module, "sorted_ranks", lambda *a: calls.append(1) or original(*a))
    found = kinfold.metrics.evaluate(x, labels, metrics=["map"])
    assert calls
    assert found["map"] == pytest.approx(retrieval(x.numpy(), labels)["map"], abs=1e-12)


def test_canonical_scores_do_not_depend_on_place():
    for d in (3, 17, 64, 128, 515):
        generator = torch.Generator().manual_seed(d)
        x = torch.randn(40, d, generator=generator)
        x = x[torch.randint(10, (4000,), generator=generator)]
        for distance in DISTANCES:
            comparison = prepare_rows(x, None, distance)
            i = torch.arange(4000)
            j = torch.zeros(4000, dtype=torch.int64)
            together = comparison.exact(i, j)
            for a in (0, 1, 7, 1023, 3999):
                assert comparison.exact(i[a : a + 1], j[a : a + 1]) == together[a]
            first = {}
            for row, value in zip(map(tuple, x.tolist()), together.tolist(), strict=True):
                assert first.setdefault(row, value) == value


@pytest.mark.parametrize("kind", ["identical", "duplicated", "tied", "zeros"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_only_runs_of_different_rows_are_looked_at(kind, distance, monkeypatch):
    """Equal rows tie without any score being worked out."""
    monkeypatch.setattr(ranks_module, "_MANY", 0)
    x, labels = make(kind)
    asked = []
    original = QueryGallery.exact
    monkeypatch.setattr(QueryGallery, "exact", lambda self, i, j: asked.append(len(i)) or original(self, i, j))
    agree(
        kinfold.metrics.evaluate(x, labels, metrics=RETRIEVAL, distance=distance),
        retrieval(x.numpy(), labels, distance=distance),
    )
    if kind == "identical":
        assert sum(asked) == 0


def test_thresholds_in_pieces(monkeypatch, by_counting):
    monkeypatch.setattr(approximation, "_THRESHOLD_ENTRIES", 500)
    x, labels = make("clustered")
    for distance in DISTANCES:
        found = kinfold.metrics.evaluate(x, labels, metrics=RETRIEVAL, distance=distance)
        agree(found, retrieval(x.numpy(), labels, distance=distance))
        found = kinfold.metrics.evaluate(x[:90], labels[:90], x[90:], labels[90:], metrics=RETRIEVAL, distance=distance)
        agree(found, retrieval(x[:90].numpy(), labels[:90], x[90:].numpy(), labels[90:], distance))


def counted_by(monkeypatch, speeds, x, labels, seconds=None):
    """Ranks where products have these speeds, and by which products the blocks were ranked one after the other."""
    monkeypatch.setattr(ranks_module, "product_speeds", lambda device: speeds)
    monkeypatch.setattr(ranks_module, "_SMALL", 0)
    taken = []
    original = Ranker._by_counting

    def noted(self, which, items, valid, exclude, dtype):
        taken.append(dtype)
        found = original(self, which, items, valid, exclude, dtype)
        if seconds is not None:
            clock[0] += seconds[dtype] * len(which)
        return found

    clock = [0.0]
    monkeypatch.setattr(Ranker, "_by_counting", noted)
    if seconds is not None:
        monkeypatch.setattr(ranks_module.time, "perf_counter", lambda: clock[0])
    # so little memory that there are many blocks
    found = kinfold.metrics.evaluate(
        x, labels, metrics=["recall@1", "recall@10", "r-precision", "map@r"], memory=1 << 19
    )
    return found, taken


@pytest.mark.parametrize("best", [torch.int8, torch.bfloat16, torch.float32])
def test_the_fastest_products_are_found_and_kept(best, monkeypatch):
    if not whole_number_products():
        pytest.skip("this processor has no exact products of whole numbers")
    x, labels = make("clustered", n=1500, d=16, classes=300)
    speeds = {torch.int8: 1e-12, torch.bfloat16: 2e-12, torch.float32: 3e-12}
    seconds = {dtype: 1e-3 if dtype == best else 2e-3 for dtype in speeds}
    found, taken = counted_by(monkeypatch, speeds, x, labels, seconds)
    assert taken[:6] == [dtype for dtype in speeds for _ in range(2)]
    assert len(taken) > 8
    assert set(taken[6:]) == {best}
    expected = retrieval(x.numpy(), labels)
    assert found == {name: pytest.approx(expected[name], abs=1e-12) for name in found}


def test_products_that_take_longer_than_all_of_another_are_not_tried(monkeypatch):
    if not whole_number_products():
        pytest.skip("this processor has no exact products of whole numbers")
    x, labels = make("clustered", n=1500, d=16, classes=300)
    one_row = 1500 * 16  # multiplications for a query
    speeds = {torch.int8: 1e-12, torch.bfloat16: 1e-3 / one_row / 1.1, torch.float32: 1.0}
    _, taken = counted_by(monkeypatch, speeds, x, labels, dict.fromkeys(speeds, 1e-3))
    assert set(taken) == {torch.int8}


def test_deep_ranks_and_squared_distances_do_without_whole_numbers(monkeypatch):
    speeds = {torch.int8: 1e-12, torch.float32: 1e-12}
    monkeypatch.setattr(ranks_module, "product_speeds", lambda device: speeds)
    x, labels = make("clustered", n=400, d=16, classes=80)
    relevant = relevance(torch.tensor(labels), None)
    for distance, depth, expected in [
        ("cosine", Depth(10), [torch.int8, torch.float32]),
        ("dot", Depth(10), [torch.int8, torch.float32]),
        ("euclidean", Depth(10), [torch.float32]),
        ("cosine", Depth(300), [torch.float32]),
        ("cosine", Depth(full=True), [torch.float32]),
    ]:
        assert Ranker(prepare_rows(x, None, distance), relevant, depth)._choices == expected


@pytest.mark.skipif(not whole_number_products(), reason="this processor has no exact products of whole numbers")
def test_queries_that_are_nothing_beside_the_gallery_are_ranked_by_whole_numbers_too():
    x, labels = make("clustered", n=300, d=16, classes=60)
    x = x * torch.logspace(-44, 3, 300)[torch.randperm(300, generator=torch.Generator().manual_seed(0)), None]
    relevant = relevance(torch.tensor(labels), None)
    expected = [
        [place + 1 for place, j in enumerate(order) if labels[j] == labels[i]]
        for i, order in enumerate(rankings(x.numpy(), None, "dot"))
    ]
    ranker = Ranker(prepare_rows(x, None, "dot"), relevant, Depth(full=True), dtype=torch.int8)
    with full_products(x.device):
        for which, found in ranker.blocks(relevant.order()):
            for i, row in zip(which.tolist(), found.tolist(), strict=True):
                assert row[: len(expected[i])] == expected[i]
