"""Products are off by less than they say, in every type and for every distance; bounds made from them are safe."""

import pytest
import torch

from kinfold.metrics.approximation import approximate, full_products
from kinfold.metrics.comparison import compare
from kinfold.metrics.neighbors import _floor
from kinfold.metrics.ranks import Depth
from kinfold.metrics.scan import symmetric_products
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
    comparison = compare(make(kind, n=90, d=40)[0], None, distance)
    with full_products(torch.device("cpu")):
        approximation = approximate(comparison, dtype)
        products = (approximation.queries @ approximation.gallery[:90].T).double()
        exact = canonical(comparison, approximation)
    rows = torch.arange(90)
    assert bool(((products - exact).abs() <= approximation.slack(exact, rows)).all())
    assert bool(((products - exact).abs() <= approximation.slack(products, rows)).all())
    assert float(products.abs().max()) <= approximation.reach


@pytest.mark.parametrize("pieces", [1, 4])
def test_products_in_pieces_are_within_a_smaller_slack(pieces):
    comparison = compare(make("clustered", n=100, d=512)[0], None, "cosine")
    with full_products(torch.device("cpu")):
        plain = approximate(comparison, torch.float32)
        products = symmetric_products(plain, 1 << 28, pieces)[:100, :100].double()
        approximation = plain.symmetric(pieces)
        exact = canonical(comparison, approximation)
    assert torch.equal(products, products.T)
    assert bool(((products - exact).abs() <= approximation.slack(exact, torch.arange(100))).all())
    # what theory asks for, and not much more
    needed = (512 / pieces + pieces) * 2.0**-24
    assert needed <= float(approximation.error.min()) <= 1.2 * needed


def test_a_floor_leaves_room_for_two_errors():
    """The k-th score may be lower than its product, and a product lower than its score."""
    comparison = compare(make("random", n=50)[0], None, "cosine")
    for dtype in (torch.bfloat16, torch.float32):
        approximation = approximate(comparison, dtype)
        kth = torch.full((50,), 0.5)
        gap = kth - _floor(approximation, torch.arange(50), kth)
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
