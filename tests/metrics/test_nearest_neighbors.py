"""Nearest neighbors equal a full sort in float64, whatever the data, the block size and the precision."""

import numpy as np
import pytest
import torch

from kinfold.metrics import neighbors
from kinfold.metrics._ranking import nearest, tuning
from kinfold.metrics._ranking.fast_products import build_fast_products, use_full_precision
from kinfold.metrics._ranking.query_gallery import build_query_gallery
from kinfold.metrics.nearest_neighbors import search_exact
from tests.metrics.brute_force import rankings, scores
from tests.metrics.embedding_sets import KINDS, make_embeddings

DISTANCES = ["cosine", "dot", "euclidean"]


def expected(x, gallery, distance, k):
    orders = rankings(x, gallery, distance)
    return torch.tensor(np.stack([order[:k] for order in orders]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_indices_equal_a_full_sort(kind, distance, dtype):
    x, _ = make_embeddings(kind)
    query_gallery = build_query_gallery(x, None, distance)
    for k in (1, 7, 100):
        with use_full_precision(x.device):
            _, indices = search_exact(query_gallery, k, torch.arange(260), 1 << 16, dtype)
        assert torch.equal(indices, expected(x.numpy(), None, distance, k))


@pytest.mark.parametrize("distance", DISTANCES)
def test_gallery_in_chunks(distance, monkeypatch):
    monkeypatch.setattr(tuning, "COLUMNS_PER_CHUNK", 128)
    x, _ = make_embeddings("duplicated", n=700)
    values, indices = neighbors(x[:50], x[50:], k=9, distance=distance)
    assert torch.equal(indices, expected(x[:50].numpy(), x[50:].numpy(), distance, 9))
    wanted = scores(x[:50].numpy(), x[50:].numpy(), distance)
    wanted = np.sqrt(-wanted) if distance == "euclidean" else wanted
    taken = np.take_along_axis(wanted, indices.numpy(), axis=1)
    torch.testing.assert_close(values, torch.tensor(taken), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("fast", "size", "wanted"),
    [
        ([torch.bfloat16, torch.float32], 300, torch.bfloat16),
        ([torch.bfloat16, torch.float32], 200, torch.float32),  # too few rows for what a bfloat16 product saves
        ([torch.float32], 300, torch.float32),  # slow here, or incorrect
    ],
)
def test_bfloat16_products_are_used_only_where_they_are_correct_and_pay(fast, size, wanted, monkeypatch):
    used = []
    monkeypatch.setattr(nearest, "time_products", lambda device: dict.fromkeys(fast, 1.0))
    monkeypatch.setattr(
        nearest, "build_fast_products", lambda rows, dtype: used.append(dtype) or build_fast_products(rows, dtype)
    )
    x = torch.randn(size, 16, generator=torch.Generator().manual_seed(0))
    _, indices = neighbors(x, k=2)
    assert used[0] == wanted
    assert torch.equal(indices, expected(x.numpy(), None, "cosine", 2))


def test_values_of_huge_rows_have_the_scale_of_the_rows():
    x = torch.tensor([[3e20, 0.0], [0.0, 4e20], [3e20, 4e20]])
    values, indices = neighbors(x, k=1, distance="euclidean")
    torch.testing.assert_close(values[:, 0], torch.tensor([4e20, 3e20, 3e20], dtype=torch.float64))
    assert indices[:, 0].tolist() == [2, 2, 1]
    values, _ = neighbors(x, k=1, distance="dot")
    torch.testing.assert_close(values[:, 0], torch.tensor([9e40, 16e40, 16e40], dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [1e-30, 1e25])
@pytest.mark.parametrize("distance", ["dot", "euclidean"])
def test_a_gallery_is_scaled_as_the_queries_are(size, distance):
    x = size * torch.randn(60, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values, indices = neighbors(x[:9], x[9:], k=3, distance=distance)
    scores = x[:9] @ x[9:].T if distance == "dot" else torch.cdist(x[:9], x[9:])
    wanted = scores.topk(3, largest=distance == "dot")
    assert torch.equal(indices, wanted.indices)
    torch.testing.assert_close(values / size, wanted.values / size, rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_with_equal_products_are_searched_in_smaller_blocks(dtype, monkeypatch):
    """All of 300 rows are candidates for everybody: 1,024 of them may be held, those of three queries."""
    counts, take_first = [], nearest.take_first
    monkeypatch.setattr(nearest, "take_first", lambda row, *more: counts.append(len(row)) or take_first(row, *more))
    x = torch.ones(300, 4)
    with use_full_precision(x.device):
        _, indices = search_exact(build_query_gallery(x, None, "cosine"), 5, torch.arange(300), 1 << 17, dtype)
    assert max(counts) <= 1024
    assert indices[0].tolist() == [1, 2, 3, 4, 5]
    assert indices[-1].tolist() == [0, 1, 2, 3, 4]


def test_self_is_left_out_by_index_not_by_rank():
    x = torch.ones(4, 3)
    _, indices = neighbors(x, k=3)
    assert indices.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_exclude_names_a_row_of_the_gallery():
    x, _ = make_embeddings("random", n=30)
    _, all_of_them = neighbors(x[:5], x, k=30)
    _, fewer = neighbors(x[:5], x, k=29, exclude=torch.tensor([0, 1, 2, 3, 4]))
    for i in range(5):
        assert fewer[i].tolist() == [j for j in all_of_them[i].tolist() if j != i]


def test_fewer_rows_than_k():
    x, _ = make_embeddings("random", n=5)
    values, indices = neighbors(x, k=100)
    assert values.shape == indices.shape == (5, 4)


def test_float64_rows_are_compared_in_float64():
    x = torch.tensor([[1.0, 0.0], [1.0, 2e-9], [1.0, 1e-9]], dtype=torch.float64)
    _, indices = neighbors(x[:1], x[1:], k=1, distance="euclidean")
    assert indices.tolist() == [[1]]
    _, as_float32 = neighbors(x[:1].float(), x[1:].float(), k=1, distance="dot")
    assert as_float32.tolist() == [[0]]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_arrays_of_other_types(dtype):
    x = (make_embeddings("clustered")[0].numpy() * 4).astype(dtype)
    _, indices = neighbors(x, k=3, distance="euclidean")
    wide = x.astype(np.float64 if dtype == np.float64 else np.float32)
    assert torch.equal(indices, expected(wide, None, "euclidean", 3))


def test_settings_of_the_user_do_not_matter():
    x, _ = make_embeddings("near-ties")
    wanted = neighbors(x, k=5)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = neighbors(x, k=5)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(result[0], wanted[0])
    assert torch.equal(result[1], wanted[1])


def test_invalid_input_is_named():
    x, _ = make_embeddings("random", n=30)
    bad = x.clone()
    bad[7, 2] = torch.nan
    bad[9, 0] = torch.inf
    with pytest.raises(ValueError, match=r"row 7 \(counted from 0\) of embeddings holds NaN.*2 such from there on"):
        neighbors(bad)
    with pytest.raises(ValueError, match=r"row 7 \(counted from 0\) of gallery"):
        neighbors(x, bad)
    with pytest.raises(ValueError, match="12 features and the gallery 4"):
        neighbors(x, x[:, :4])
    with pytest.raises(ValueError, match="no rows"):
        neighbors(x, x[:0])
    with pytest.raises(ValueError, match="matrix"):
        neighbors(x[0])
    with pytest.raises(ValueError, match="k must be"):
        neighbors(x, k=0)
    with pytest.raises(ValueError, match="cosine, dot, euclidean"):
        neighbors(x, distance="cos")
    with pytest.raises(ValueError, match="one gallery index for each"):
        neighbors(x, exclude=torch.tensor([1]))
    with pytest.raises(ValueError, match="backend"):
        neighbors(x, backend="annoy")


def test_approximate_search_by_faiss():
    pytest.importorskip("faiss", reason="faiss is an optional extra")
    x, _ = make_embeddings("clustered", n=400)
    for distance in DISTANCES[::2]:
        values, indices = neighbors(x, k=5, distance=distance, backend="faiss")
        exact_values, exact = neighbors(x, k=5, distance=distance)
        assert (indices == exact).float().mean() > 0.95
        torch.testing.assert_close(values[indices == exact], exact_values[indices == exact])


@pytest.mark.parametrize("kind", ["identical", "collapsed", "tied"])
def test_many_candidates_are_processed_in_smaller_blocks(kind):
    x, _ = make_embeddings(kind, n=300)
    query_gallery = build_query_gallery(x, None, "cosine")
    with use_full_precision(x.device):
        _, indices = search_exact(query_gallery, 5, torch.arange(300), 1 << 17, torch.float32)
    assert torch.equal(indices, expected(x.numpy(), None, "cosine", 5))


def test_a_memory_limit_is_refused_by_faiss():
    with pytest.raises(ValueError, match="memory_limit is for the exact search"):
        neighbors(torch.eye(4), k=1, backend="faiss", memory_limit=1 << 20)


@pytest.mark.parametrize("distance", ["dot", "euclidean"])
@pytest.mark.parametrize("size", [1e-5, 0.01, 0.2, 30.0])
def test_short_rows_have_neighbors_too(size, distance):
    x = make_embeddings("random", n=60)[0] * size
    expected = np.stack([order[:59] for order in rankings(x.numpy(), None, distance)])
    assert np.array_equal(neighbors(x, k=59, distance=distance)[1].numpy(), expected)


def test_rows_of_zeros_are_in_the_order_of_their_indices():
    _, indices = neighbors(torch.zeros(4, 3), k=3, distance="dot")
    assert indices.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_the_approximate_search_finds_no_more_rows_than_there_are():
    pytest.importorskip("faiss", reason="faiss is an optional extra")
    _, indices = neighbors(make_embeddings("random", n=5)[0], k=100, backend="faiss")
    assert indices.shape[1] <= 5
    for i, row in enumerate(indices.tolist()):
        assert sorted(j for j in row if j >= 0) == [j for j in range(5) if j != i]


@pytest.mark.parametrize("k", [1, 2, 5, 10, 20, 30, 40, 80, 128, 400])
def test_a_gallery_in_chunks_at_every_depth(k, monkeypatch):
    """From groups of many columns to no groups at all."""
    monkeypatch.setattr(tuning, "COLUMNS_PER_CHUNK", 128)
    x = make_embeddings("clustered", n=460)[0]
    expected = np.stack([order[:k] for order in rankings(x[:30].numpy(), x[30:].numpy(), "cosine")])
    assert np.array_equal(neighbors(x[:30], x[30:], k=k)[1].numpy(), expected)
