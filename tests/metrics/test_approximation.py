"""Products are off by less than they say, in every type and for every distance; bounds made from them are safe."""

import pytest
import torch

from kinfold.metrics._ranking.approximation import approximate, full_products, whole_rows
from kinfold.metrics._ranking.product_speed import whole_number_products
from kinfold.metrics._ranking.query_gallery import prepare_rows
from kinfold.metrics._ranking.ranker import Depth
from kinfold.metrics._ranking.scan import symmetric_products
from kinfold.metrics.neighbors import candidate_floor
from tests.metrics.spaces import KINDS, make


def canonical(comparison, approximation):
    """Canonical scores of all pairs where the products stand, (N, N)."""
    n = comparison.size
    i = torch.arange(n).repeat_interleave(n)
    scores = comparison.exact(i, torch.arange(n).repeat(n)).view(n, n)
    return scores + approximation.offset[:, None]


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_products_are_within_their_slack(kind, distance, dtype):
    comparison = prepare_rows(make(kind, n=90, d=40)[0], None, distance)
    with full_products(torch.device("cpu")):
        approximation = approximate(comparison, dtype)
        products = (approximation.queries @ approximation.gallery[:90].T).double()
        exact = canonical(comparison, approximation)
    rows = torch.arange(90)
    assert bool(((products - exact).abs() <= approximation.slack(exact, rows)).all())
    assert bool(((products - exact).abs() <= approximation.slack(products, rows)).all())
    assert float(products.abs().max()) <= approximation.reach


def whole_products(approximation, size):
    found = torch.empty(approximation.queries.shape[0], approximation.gallery.shape[0], dtype=torch.int32)
    approximation.product(approximation.queries, approximation.gallery, found)
    return (found * approximation.unit[:, None])[:, :size].double()


@pytest.mark.skipif(not whole_number_products(), reason="this processor has no exact products of whole numbers")
@pytest.mark.parametrize("distance", ["cosine", "dot"])
@pytest.mark.parametrize("kind", KINDS)
def test_products_of_whole_numbers_are_within_their_slack(kind, distance):
    comparison = prepare_rows(make(kind, n=90, d=40)[0], None, distance)
    approximation = approximate(comparison, torch.int8)
    assert approximation.queries.dtype == approximation.gallery.dtype == torch.int8
    products, exact, rows = whole_products(approximation, 90), canonical(comparison, approximation), torch.arange(90)
    assert bool(((products - exact).abs() <= approximation.slack(exact, rows)).all())
    assert bool(((products - exact).abs() <= approximation.slack(products, rows)).all())
    assert float(products.abs().max()) <= approximation.reach


@pytest.mark.skipif(not whole_number_products(), reason="this processor has no exact products of whole numbers")
def test_whole_numbers_keep_their_error_between_rows_of_very_different_lengths():
    """A query that is nothing beside the others has a unit that float32 cannot hold."""
    x = make("random", n=60, d=20)[0] * torch.logspace(-30, 3, 60)[:, None]
    comparison = prepare_rows(x, None, "dot")
    approximation = approximate(comparison, torch.int8)
    off = whole_products(approximation, 60) - canonical(comparison, approximation)
    assert bool((off.abs() <= approximation.slack(canonical(comparison, approximation), torch.arange(60))).all())


def test_a_row_is_rounded_to_the_nearest_whole_numbers():
    rows = torch.tensor([[0.5, -1.0, 0.25], [0.0, 0.0, 0.0], [254.0, 3.0, -127.0]])
    found, scale, norm, error = whole_rows(rows)
    assert found.tolist() == [[64, -127, 32], [0, 0, 0], [127, 2, -64]]  # 1.5 and 63.5 go to the even one
    assert scale.tolist() == [1 / 127, 1.0, 2.0]
    assert norm.tolist() == pytest.approx(rows.double().norm(dim=1).tolist())
    assert error.tolist() == pytest.approx((rows - found * scale[:, None]).norm(dim=1).tolist())
    assert whole_rows(rows, in_one_scale=True)[1].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
def test_products_of_some_pairs_have_the_error_of_all(distance):
    comparison = prepare_rows(make("clustered", n=90, d=40)[0], None, distance)
    approximation = approximate(comparison, torch.float32)
    i, j = torch.randint(0, 90, (2, 40_000), generator=torch.Generator().manual_seed(0))
    off = approximation.pairs(i, j).double() - canonical(comparison, approximation)[i, j]
    assert bool((off.abs() <= approximation.error[i]).all())


def test_errors_reach_what_rounded_rows_can_be_off_by():
    """|x - x'| |y| + |x'| |y - y'| where both rows are rounded to longer ones."""
    x = torch.full((1, 64), 1.0 + 2.0**-8 + 2.0**-20)  # bfloat16 takes it up to 1 + 2^-7
    comparison = prepare_rows(x, x.clone(), "dot")
    approximation = approximate(comparison, torch.bfloat16)
    off = float(
        (approximation.queries.double() @ approximation.gallery[:1].double().T)[0, 0] - x.double().square().sum()
    )
    assert off > 0
    assert float(approximation.error[0]) >= off


@pytest.mark.parametrize("pieces", [1, 4])
def test_products_in_pieces_are_within_a_smaller_slack(pieces):
    comparison = prepare_rows(make("clustered", n=100, d=512)[0], None, "cosine")
    with full_products(torch.device("cpu")):
        plain = approximate(comparison, torch.float32)
        products = symmetric_products(plain.in_pieces(pieces), 1 << 28)[:100, :100].double()
        approximation = plain.in_pieces(pieces).symmetric()
        exact = canonical(comparison, approximation)
    assert torch.equal(products, products.T)
    assert bool(((products - exact).abs() <= approximation.slack(exact, torch.arange(100))).all())
    # what theory asks for, and not much more
    needed = (512 / pieces + pieces) * 2.0**-24
    assert needed <= float(approximation.error.min()) <= 1.2 * needed


def test_a_floor_leaves_room_for_two_errors():
    """The k-th score may be lower than its product, and a product lower than its score."""
    comparison = prepare_rows(make("random", n=50)[0], None, "cosine")
    for dtype in (torch.bfloat16, torch.float32):
        approximation = approximate(comparison, dtype)
        kth = torch.full((50,), 0.5)
        gap = kth - candidate_floor(approximation, torch.arange(50), kth)
        assert bool((gap >= 1.999 * approximation.error).all())  # but for rounding


def test_depths_add_up_to_the_deeper():
    for a, b in [
        (Depth(first=2), Depth(first=9)),
        (Depth(3), Depth(5, beside_relevant=0)),
        (Depth(4), Depth(full=True)),
    ]:
        assert a | b == b | a
        assert (a | b).first == max(a.first, b.first)
        assert (a | b).fixed == max(a.fixed, b.fixed)
        assert (a | b).full == (a.full or b.full)
    assert (Depth(first=2) | Depth(3)).at(relevant=1, size=100) == (3, 3)
    assert (Depth(first=9) | Depth(3)).at(relevant=1, size=100) == (3, 9)
