"""Fast products that approximate exact scores within a proven error bound.

A product of rounded rows differs from the exact score of query i by at most

    error_i + relative_error * |product|

error_i = |x - x'| |y| + |x'| |y - y'| (rows rounded, Cauchy-Schwarz, the largest over the gallery) + the rounding of a
sum of d products. relative_error is the last rounding of the result. For the Euclidean distance the product is
2 x.y - |y|^2 of centered rows. int8 rows have a scale: one for each query, one for the gallery. Their products are
int32 and exact.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.rounding import compute_squared_lengths, round_centered_rows, round_rows, round_to_int8
from kinfold.metrics._ranking.rows import gather_row_pairs


@dataclass(frozen=True)
class FastProducts:
    """Rounded rows of queries and gallery, and the error bound of their products.

    Args:
        query_gallery: The original rows.
        queries: Rounded queries, (Q, d').
        gallery: Rounded gallery, padded, (N', d').
        error: The absolute error of a product, (Q,) float64.
        sum_error: The part of `error` that comes from summation, (Q,) float64.
        exact_error: The error of scores and thresholds that are computed in float64, (Q,).
        offset: Threshold minus exact score, (Q,) float64; zero for similarities.
        relative_error: The error relative to the size of a product.
        max_product: No product is larger than this.
        center: The mean that was subtracted from the rows, for the Euclidean distance.
        int8_scale: The factor of int32 products of int8 rows, (Q,) float32; None for other types.
        pieces: The features are multiplied in so many pieces: sums of fewer terms have less error.
    """

    query_gallery: QueryGallery
    queries: Tensor
    gallery: Tensor
    error: Tensor
    sum_error: Tensor
    exact_error: Tensor
    offset: Tensor
    relative_error: float
    max_product: float
    center: Tensor | None
    int8_scale: Tensor | None = None
    pieces: int = 1

    @property
    def dtype(self) -> torch.dtype:
        """The type of the products."""
        return torch.int32 if self.int8_scale is not None else self.queries.dtype

    def multiply(self, queries: Tensor, gallery: Tensor, out: Tensor) -> None:
        """Write the products (B, C) of some rounded rows of each side into `out`."""
        if self.int8_scale is not None:
            torch._int_mm(queries, gallery.T, out=out)
            return
        parts = zip(
            torch.tensor_split(queries, self.pieces, dim=1), gallery.tensor_split(self.pieces, dim=1), strict=True
        )
        for piece, (left, right) in enumerate(parts):
            if piece == 0:
                torch.mm(left, right.T, out=out)
            else:
                out.addmm_(left, right.T)

    def multiply_pairs(self, i: Tensor, j: Tensor) -> Tensor:
        """Return the products (T,) of query i[t] and gallery row j[t], with the same error bound."""
        products = self.queries.new_empty(i.shape[0])
        for part, left, right in gather_row_pairs(self.queries, self.gallery, i, j, tuning.FAST_PAIR_ENTRIES):
            torch.sum(left.mul_(right), dim=1, out=products[part])
        return products

    def split_features(self, pieces: int) -> "FastProducts":
        """Return float32 products that add up so many pieces of the features."""
        d = self.queries.shape[1]
        less = self.sum_error * (1.0 - (d / pieces + pieces + 8) / (d + 8)) if pieces > 1 else 0.0
        return replace(self, error=self.error - less, pieces=max(1, pieces))

    def as_symmetric(self) -> "FastProducts":
        """Return products with the error of a matrix in which (i, j) may have been computed as (j, i)."""
        return replace(self, error=self.error.max().expand_as(self.error))

    def bound_error(self, value: Tensor, query_ids: Tensor | slice) -> Tensor:
        """Return how far product and exact score may be apart if either of them is `value` (B, ...)."""
        error = self.error[query_ids].reshape(-1, *[1] * (value.dim() - 1))
        return error + self.relative_error * (value.abs() + error)

    def lower_candidate_bound(self, kth: Tensor, query_ids: Tensor) -> Tensor:
        """Return the least product (B,) of a row that can be among the k highest exact scores.

        The k-th score is at least the k-th product `kth` (B,) minus an error, and the product of a row with that score
        at least that minus another error.
        """
        kth = kth.double()
        lowest_score = kth - self.bound_error(kth, query_ids)
        floor = lowest_score - self.bound_error(lowest_score, query_ids)
        # excluded and padded columns have -inf; they must not become candidates while there is no bound yet
        return floor.nan_to_num(nan=-torch.inf).clamp(min=-2.0 * self.max_product - 1.0)


def build_fast_products(query_gallery: QueryGallery, dtype: torch.dtype) -> FastProducts:
    """Round the rows to `dtype` and derive the error bound of their products."""
    if dtype == torch.int8:
        return _build_int8_products(query_gallery)
    if query_gallery.distance == "euclidean":
        center = query_gallery.gallery.sum(dim=0, dtype=torch.float64) / query_gallery.size
        y = round_centered_rows(query_gallery.gallery, center, dtype, as_query=False)
        x = round_centered_rows(query_gallery.queries, center, dtype, as_query=True)
    else:
        center = None
        y = round_rows(query_gallery.gallery, dtype)
        x = y if query_gallery.queries is query_gallery.gallery else round_rows(query_gallery.queries, dtype)
    longest, worst = float(y.norm.max()), float(y.error.max())
    d = x.rows.shape[1]
    epsilon = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps / 2
    # holds for any order of the d products in a sum
    sum_error = 1.01 * (d + 8) * epsilon * (x.norm + x.error) * (longest + worst)
    error = x.error * longest + (x.norm + x.error) * worst + sum_error + y.lost_length
    underflow = _bound_underflow(dtype, d, x.norm, longest)
    max_product = 1.1 * float(x.norm.max()) * longest + float(underflow.max()) if x.norm.numel() else 1.0
    exact_error = _bound_exact_error(d, x.norm, longest)
    error = error + exact_error + underflow
    if dtype != torch.float64:
        error = error + 2.0**-38 * max_product  # sort keys contain the row beside the product (see RankCounter)
    offset = torch.full_like(error, 0.0 if query_gallery.hyperbolic is None else -1.0)
    if center is not None:
        offset = compute_squared_lengths(query_gallery.queries, center)
    relative_error = 1.01 * torch.finfo(dtype).eps / 2 if dtype == torch.bfloat16 else 0.0
    return FastProducts(
        query_gallery, x.rows, _pad(y.rows), error, sum_error, exact_error, offset, relative_error, max_product, center
    )


def _build_int8_products(query_gallery: QueryGallery) -> FastProducts:
    """Round queries to int8 with a scale each, the gallery with one scale, for exact int32 products."""
    if query_gallery.has_distances:
        raise ValueError("int8 products cannot hold the squared lengths of the Euclidean distance")
    x, y = round_to_int8(query_gallery.queries), round_to_int8(query_gallery.gallery, shared_scale=True)
    assert x.scale is not None
    assert y.scale is not None
    longest, worst = float(y.norm.max()), float(y.error.max())
    d = x.rows.shape[1]
    underflow = _bound_underflow(torch.float32, d, x.norm, longest)
    products = 1.1 * (x.norm + x.error) * (longest + worst)
    max_product = float(products.max()) + float(underflow.max()) if x.norm.numel() else 1.0
    exact_error = _bound_exact_error(d, x.norm, longest)
    error = x.error * longest + (x.norm + x.error) * worst + exact_error + underflow + 2.0**-38 * max_product
    scale = (x.scale * y.scale[0]).float()  # where it underflows in float32, products are smaller than the error
    zero = torch.zeros_like(error)
    # 2^-22: the integer, its scale and their product are rounded to float32
    return FastProducts(
        query_gallery, x.rows, _pad(y.rows), error, zero, exact_error, zero, 2.0**-22, max_product, None, scale
    )


def _bound_exact_error(d: int, norm: Tensor, longest: float) -> Tensor:
    """Return several times the rounding of the float64 scores of each query, (Q,)."""
    epsilon = torch.finfo(torch.float64).eps
    return 4 * (d + 8) * epsilon * norm * longest + _bound_underflow(torch.float64, d, norm, longest)


def _bound_underflow(dtype: torch.dtype, d: int, norm: Tensor, longest: float) -> Tensor:
    """Return the most that a sum of d products loses by factors or products below the smallest normal number, (Q,)."""
    smallest = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).tiny
    return d * smallest * (1.0 + norm + longest)


def _pad(rows: Tensor) -> Tensor:
    missing = -rows.shape[0] % tuning.GALLERY_PADDING
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows


@contextmanager
def use_full_precision(device: torch.device) -> Iterator[None]:
    """Compute without gradients and autocast, and float32 products in float32, whatever the settings of the user."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
