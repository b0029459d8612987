"""Nearest neighbours equal a full sort in float64, whatever the data, the block and the precision."""

import sys

import numpy as np
import pytest
import torch

import kinfold
from kinfold.metrics import neighbors as function
from kinfold.metrics._ranking import scan
from kinfold.metrics._ranking.approximation import full_products
from kinfold.metrics._ranking.query_gallery import prepare_rows
from kinfold.metrics._ranking.scan import _sampled_kth
from kinfold.metrics.neighbors import _neighbors
from tests.metrics.brute_force import rankings, scores
from tests.metrics.spaces import KINDS, make

DISTANCES = ["cosine", "dot", "euclidean"]


def expected(x, gallery, distance, k):
    orders = rankings(x, gallery, distance)
    return torch.tensor(np.stack([order[:k] for order in orders]))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_indices_equal_a_full_sort(kind, distance, dtype):
    x, _ = make(kind)
    comparison = prepare_rows(x, None, distance)
    for k in (1, 7, 100):
        with full_products(x.device):
            _, indices = _neighbors(comparison, k, torch.arange(260), 1 << 16, dtype)
        assert torch.equal(indices, expected(x.numpy(), None, distance, k))


@pytest.mark.parametrize("distance", DISTANCES)
def test_gallery_in_chunks(distance, monkeypatch):
    monkeypatch.setattr(scan, "_COLUMNS", 128)
    x, _ = make("duplicated", n=700)
    values, indices = function(x[:50], x[50:], k=9, distance=distance)
    assert torch.equal(indices, expected(x[:50].numpy(), x[50:].numpy(), distance, 9))
    wanted = scores(x[:50].numpy(), x[50:].numpy(), distance)
    wanted = np.sqrt(-wanted) if distance == "euclidean" else wanted
    taken = np.take_along_axis(wanted, indices.numpy(), axis=1)
    torch.testing.assert_close(values, torch.tensor(taken), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("fast", "size", "wanted"),
    [
        ([torch.bfloat16, torch.float32], 300, torch.bfloat16),
        ([torch.bfloat16, torch.float32], 200, torch.float32),  # too few rows for what a coarse product saves
        ([torch.float32], 300, torch.float32),  # slow here, or wrong
    ],
)
def test_coarse_products_propose_only_where_they_are_right_and_pay(fast, size, wanted, monkeypatch):
    module = sys.modules["kinfold.metrics.neighbors"]
    taken, approximate = [], module.approximate
    monkeypatch.setattr(module, "product_speeds", lambda device: dict.fromkeys(fast, 1.0))
    monkeypatch.setattr(module, "approximate", lambda rows, dtype: taken.append(dtype) or approximate(rows, dtype))
    x = torch.randn(size, 16, generator=torch.Generator().manual_seed(0))
    _, indices = function(x, k=2)
    assert taken[0] == wanted
    assert torch.equal(indices, expected(x.numpy(), None, "cosine", 2))


def test_values_of_huge_rows_come_back_in_their_own_scale():
    x = torch.tensor([[3e20, 0.0], [0.0, 4e20], [3e20, 4e20]])
    values, indices = function(x, k=1, distance="euclidean")
    torch.testing.assert_close(values[:, 0], torch.tensor([4e20, 3e20, 3e20], dtype=torch.float64))
    assert indices[:, 0].tolist() == [2, 2, 1]
    values, _ = function(x, k=1, distance="dot")
    torch.testing.assert_close(values[:, 0], torch.tensor([9e40, 16e40, 16e40], dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [1e-30, 1e25])
@pytest.mark.parametrize("distance", ["dot", "euclidean"])
def test_a_gallery_of_its_own_is_scaled_as_the_queries_are(size, distance):
    x = size * torch.randn(60, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values, indices = function(x[:9], x[9:], k=3, distance=distance)
    scores = x[:9] @ x[9:].T if distance == "dot" else torch.cdist(x[:9], x[9:])
    wanted = scores.topk(3, largest=distance == "dot")
    assert torch.equal(indices, wanted.indices)
    torch.testing.assert_close(values / size, wanted.values / size, rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_no_product_tells_apart_are_taken_by_fewer_at_a_time(dtype, monkeypatch):
    """All of 300 rows are candidates for everybody: 1,024 of them may be held, those of three queries."""
    module = sys.modules["kinfold.metrics.neighbors"]
    held, first = [], module._first
    monkeypatch.setattr(module, "_first", lambda row, *given: held.append(len(row)) or first(row, *given))
    x = torch.ones(300, 4)
    with full_products(x.device):
        _, indices = _neighbors(prepare_rows(x, None, "cosine"), 5, torch.arange(300), 1 << 17, dtype)
    assert max(held) <= 1024
    assert indices[0].tolist() == [1, 2, 3, 4, 5]
    assert indices[-1].tolist() == [0, 1, 2, 3, 4]


def test_self_is_left_out_by_index_not_by_rank():
    x = torch.ones(4, 3)
    _, indices = function(x, k=3)
    assert indices.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_exclude_names_a_row_of_the_gallery():
    x, _ = make("random", n=30)
    _, all_of_them = function(x[:5], x, k=30)
    _, fewer = function(x[:5], x, k=29, exclude=torch.tensor([0, 1, 2, 3, 4]))
    for i in range(5):
        assert fewer[i].tolist() == [j for j in all_of_them[i].tolist() if j != i]


def test_fewer_rows_than_k():
    x, _ = make("random", n=5)
    values, indices = function(x, k=100)
    assert values.shape == indices.shape == (5, 4)


def test_float64_rows_are_compared_in_float64():
    x = torch.tensor([[1.0, 0.0], [1.0, 2e-9], [1.0, 1e-9]], dtype=torch.float64)
    _, indices = function(x[:1], x[1:], k=1, distance="euclidean")
    assert indices.tolist() == [[1]]
    _, as_float32 = function(x[:1].float(), x[1:].float(), k=1, distance="dot")
    assert as_float32.tolist() == [[0]]


@pytest.mark.parametrize("given", [np.float16, np.float64, np.int32])
def test_arrays_of_other_types(given):
    x = (make("clustered")[0].numpy() * 4).astype(given)
    _, indices = kinfold.metrics.neighbors(x, k=3, distance="euclidean")
    wide = x.astype(np.float64 if given == np.float64 else np.float32)
    assert torch.equal(indices, expected(wide, None, "euclidean", 3))


def test_settings_of_the_user_do_not_matter():
    x, _ = make("near-ties")
    wanted = function(x, k=5)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = function(x, k=5)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])


def test_wrong_input_is_named():
    x, _ = make("random", n=30)
    bad = x.clone()
    bad[7, 2] = torch.nan
    bad[9, 0] = torch.inf
    with pytest.raises(ValueError, match=r"row 7 \(counted from 0\) of embeddings holds NaN.*2 such from there on"):
        function(bad)
    with pytest.raises(ValueError, match=r"row 7 \(counted from 0\) of gallery"):
        function(x, bad)
    with pytest.raises(ValueError, match="12 features and the gallery 4"):
        function(x, x[:, :4])
    with pytest.raises(ValueError, match="no rows"):
        function(x, x[:0])
    with pytest.raises(ValueError, match="matrix"):
        function(x[0])
    with pytest.raises(ValueError, match="k must be"):
        function(x, k=0)
    with pytest.raises(ValueError, match="cosine, dot, euclidean"):
        function(x, distance="cos")
    with pytest.raises(ValueError, match="one gallery index for each"):
        function(x, exclude=torch.tensor([1]))
    with pytest.raises(ValueError, match="backend"):
        function(x, backend="annoy")


def test_approximate_search_by_faiss():
    pytest.importorskip("faiss", reason="faiss is an optional extra")
    x, _ = make("clustered", n=400)
    for distance in DISTANCES[::2]:
        values, indices = function(x, k=5, distance=distance, backend="faiss")
        exact_values, exact = function(x, k=5, distance=distance)
        assert (indices == exact).float().mean() > 0.95
        torch.testing.assert_close(values[indices == exact], exact_values[indices == exact])


@pytest.mark.parametrize("kind", ["identical", "collapsed", "tied"])
def test_many_candidates_are_taken_in_smaller_blocks(kind):
    x, _ = make(kind, n=300)
    comparison = prepare_rows(x, None, "cosine")
    with full_products(x.device):
        _, indices = _neighbors(comparison, 5, torch.arange(300), 1 << 17, torch.float32)
    assert torch.equal(indices, expected(x.numpy(), None, "cosine", 5))


@pytest.mark.parametrize("k", [1, 2, 100, 1000, 1900, 2000])
def test_a_sampled_bound_is_one_for_rows_in_any_order(k):
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(60, 2000, generator=generator)
    steps = torch.randint(0, 3, (20, 2000), generator=generator).float()
    blind = random[:20].clone()
    blind[:, ::8] += 5.0  # what the sample sees is nothing like the rest
    rows = torch.cat([random, random[:20].sort(dim=1).values, steps, blind, torch.full((5, 2000), 0.25)])
    bound = _sampled_kth(rows, k)
    true = rows.sort(dim=1, descending=True).values[:, k - 1]
    assert (bound <= true).all()
    reached = (rows[:60] >= bound[:60, None]).sum(dim=1).double()
    assert reached.mean() <= k + 4 * (8 * k) ** 0.5 + 8, "it is of no use where it lets everything through"
    found = _sampled_kth(rows.bfloat16(), k)
    assert (found <= rows.bfloat16().float().sort(dim=1, descending=True).values[:, k - 1]).all()


def test_a_memory_limit_is_refused_by_the_search_that_would_ignore_it():
    with pytest.raises(ValueError, match="memory bounds the blocks of the exact search"):
        function(torch.eye(4), k=1, backend="faiss", memory=1 << 20)
