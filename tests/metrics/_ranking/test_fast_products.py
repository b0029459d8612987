"""Products are within their error bound, for every type and distance, and bounds derived from them are safe."""

import pytest
import torch

from kinfold.metrics._ranking.fast_products import build_fast_products, use_full_precision
from kinfold.metrics._ranking.product_timing import has_exact_int8_products
from kinfold.metrics._ranking.query_gallery import build_query_gallery
from kinfold.metrics._ranking.scan import multiply_symmetric
from tests.metrics.embedding_sets import KINDS, make_embeddings


def exact_scores_of(query_gallery, products):
    """Return the exact scores of all pairs on the scale of the matrix, (N, N)."""
    n = query_gallery.size
    i = torch.arange(n).repeat_interleave(n)
    scores = query_gallery.exact_scores(i, torch.arange(n).repeat(n)).view(n, n)
    return scores + products.offset[:, None]


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_products_are_within_their_error_bound(kind, distance, dtype):
    query_gallery = build_query_gallery(make_embeddings(kind, n=90, d=40)[0], None, distance)
    with use_full_precision(torch.device("cpu")):
        products = build_fast_products(query_gallery, dtype)
        matrix = (products.queries @ products.gallery[:90].T).double()
        exact = exact_scores_of(query_gallery, products)
    rows = torch.arange(90)
    assert bool(((matrix - exact).abs() <= products.bound_error(exact, rows)).all())
    assert bool(((matrix - exact).abs() <= products.bound_error(matrix, rows)).all())
    assert float(matrix.abs().max()) <= products.max_product


def int8_products(products, size):
    matrix = torch.empty(products.queries.shape[0], products.gallery.shape[0], dtype=torch.int32)
    products.multiply(products.queries, products.gallery, matrix)
    return (matrix * products.int8_scale[:, None])[:, :size].double()


@pytest.mark.skipif(not has_exact_int8_products(), reason="this processor has no exact int8 products")
@pytest.mark.parametrize("distance", ["cosine", "dot"])
@pytest.mark.parametrize("kind", KINDS)
def test_int8_products_are_within_their_error_bound(kind, distance):
    query_gallery = build_query_gallery(make_embeddings(kind, n=90, d=40)[0], None, distance)
    products = build_fast_products(query_gallery, torch.int8)
    assert products.queries.dtype == products.gallery.dtype == torch.int8
    matrix, exact, rows = int8_products(products, 90), exact_scores_of(query_gallery, products), torch.arange(90)
    assert bool(((matrix - exact).abs() <= products.bound_error(exact, rows)).all())
    assert bool(((matrix - exact).abs() <= products.bound_error(matrix, rows)).all())
    assert float(matrix.abs().max()) <= products.max_product


@pytest.mark.skipif(not has_exact_int8_products(), reason="this processor has no exact int8 products")
def test_the_rounding_of_exact_scores_is_bounded_by_the_number_of_features():
    query_gallery = build_query_gallery(make_embeddings("random", n=4, d=900)[0], None, "cosine")
    products = build_fast_products(query_gallery, torch.int8)
    assert bool((products.exact_error >= 900 * torch.finfo(torch.float64).eps).all())


@pytest.mark.skipif(not has_exact_int8_products(), reason="this processor has no exact int8 products")
def test_int8_products_keep_their_error_between_rows_of_very_different_lengths():
    """A query that is tiny beside the others has a scale that float32 cannot hold."""
    x = make_embeddings("random", n=60, d=20)[0] * torch.logspace(-30, 3, 60)[:, None]
    query_gallery = build_query_gallery(x, None, "dot")
    products = build_fast_products(query_gallery, torch.int8)
    error = int8_products(products, 60) - exact_scores_of(query_gallery, products)
    assert bool((error.abs() <= products.bound_error(exact_scores_of(query_gallery, products), torch.arange(60))).all())


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
def test_products_of_some_pairs_have_the_error_of_all(distance):
    query_gallery = build_query_gallery(make_embeddings("clustered", n=90, d=40)[0], None, distance)
    products = build_fast_products(query_gallery, torch.float32)
    i, j = torch.randint(0, 90, (2, 40_000), generator=torch.Generator().manual_seed(0))
    error = products.multiply_pairs(i, j).double() - exact_scores_of(query_gallery, products)[i, j]
    assert bool((error.abs() <= products.error[i]).all())


def test_the_error_bound_covers_rows_that_are_rounded_to_longer_ones():
    """|x - x'| |y| + |x'| |y - y'| where both rows are rounded to longer ones."""
    x = torch.full((1, 64), 1.0 + 2.0**-8 + 2.0**-20)  # bfloat16 takes it up to 1 + 2^-7
    query_gallery = build_query_gallery(x, x.clone(), "dot")
    products = build_fast_products(query_gallery, torch.bfloat16)
    error = float((products.queries.double() @ products.gallery[:1].double().T)[0, 0] - x.double().square().sum())
    assert error > 0
    assert float(products.error[0]) >= error


@pytest.mark.parametrize("pieces", [1, 4])
def test_products_in_pieces_are_within_a_smaller_error_bound(pieces):
    query_gallery = build_query_gallery(make_embeddings("clustered", n=100, d=512)[0], None, "cosine")
    with use_full_precision(torch.device("cpu")):
        plain = build_fast_products(query_gallery, torch.float32)
        matrix = multiply_symmetric(plain.split_features(pieces), 1 << 28)[:100, :100].double()
        products = plain.split_features(pieces).as_symmetric()
        exact = exact_scores_of(query_gallery, products)
    assert torch.equal(matrix, matrix.T)
    assert bool(((matrix - exact).abs() <= products.bound_error(exact, torch.arange(100))).all())
    # what theory asks for, and not much more
    needed = (512 / pieces + pieces) * 2.0**-24
    assert needed <= float(products.error.min()) <= 1.2 * needed


def test_the_lower_bound_of_candidates_subtracts_two_errors():
    """The k-th score may be lower than its product, and a product lower than its score."""
    query_gallery = build_query_gallery(make_embeddings("random", n=50)[0], None, "cosine")
    for dtype in (torch.bfloat16, torch.float32):
        products = build_fast_products(query_gallery, dtype)
        kth = torch.full((50,), 0.5)
        gap = kth - products.lower_candidate_bound(kth, torch.arange(50))
        assert bool((gap >= 1.999 * products.error).all())  # but for rounding
