"""Fast products that stand for canonical scores up to a proven error.

A product of rounded rows differs from the canonical score of query i by at most

    error_i + rounding * |product|

with error_i = |x - x'| |y| + |x'| |y - y'| (rows rounded, Cauchy-Schwarz, y over the whole gallery) + the rounding of a
sum of d products, and `rounding` for the last rounding of the result. For the Euclidean distance the product is
2 x.y - |y|^2 of centred rows, three more columns, which orders a gallery as -|x - y|^2 does.

Rows of whole numbers, int8, have a scale: one for each query, one for the gallery. Their products are int32 and exact.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kinfold.metrics._ranking.query_gallery import QueryGallery, gather_row_pairs

_ROWS_AT_ONCE = 1 << 15
_ENTRIES_AT_ONCE = 1 << 17  # of rows that are made whole numbers: they stay in the processor's cache
_THRESHOLD_ENTRIES = 1 << 23  # float64 numbers of rows that are gathered for thresholds
_PAIR_ENTRIES = 1 << 19
PAD = 64  # the gallery is padded to a multiple of this, so that columns fall into groups


@dataclass(frozen=True)
class Approximation:
    """Rounded rows and what their products can be off by.

    queries: (Q, d'), gallery: (N padded, d') in the dtype of the product. unit: (Q,) float32, what products of int8
    rows have to be multiplied by; None for all others.
    error, summed, tiny: (Q,) float64, of a product, of its sum alone, and of a float64 threshold. offset: (Q,) what a
    threshold is higher than the canonical score. reach: no product is larger than this. centre: what was taken from
    Euclidean rows.
    """

    comparison: QueryGallery
    queries: Tensor
    gallery: Tensor
    error: Tensor
    summed: Tensor
    tiny: Tensor
    offset: Tensor
    rounding: float
    reach: float
    centre: Tensor | None
    unit: Tensor | None = None
    pieces: int = 1  # of the features, which are multiplied one after the other: sums of fewer terms are rounded less

    @property
    def dtype(self) -> torch.dtype:
        """Of the products."""
        return torch.int32 if self.unit is not None else self.queries.dtype

    def product(self, queries: Tensor, gallery: Tensor, out: Tensor) -> None:
        """Products (B, C) of some rows of each side."""
        if self.unit is not None:
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

    def pairs(self, i: Tensor, j: Tensor) -> Tensor:
        """Products (T,) of query i[t] and gallery row j[t], with the same error."""
        found = self.queries.new_empty(i.shape[0])
        for part, left, right in gather_row_pairs(self.queries, self.gallery, i, j, _PAIR_ENTRIES):
            torch.sum(left.mul_(right), dim=1, out=found[part])
        return found

    def in_pieces(self, pieces: int) -> "Approximation":
        """The same with float32 products of so many pieces of the features."""
        d = self.queries.shape[1]
        less = self.summed * (1.0 - (d / pieces + pieces + 8) / (d + 8)) if pieces > 1 else 0.0
        return replace(self, error=self.error - less, pieces=max(1, pieces))

    def symmetric(self) -> "Approximation":
        """The same where the product of i and j may have been worked out as that of j and i."""
        return replace(self, error=self.error.max().expand_as(self.error))

    def slack(self, at: Tensor, rows: Tensor | slice) -> Tensor:
        """How far a product may be from the canonical score, where either of them is `at` (B, ...)."""
        error = self.error[rows].reshape(-1, *[1] * (at.dim() - 1))
        return error + self.rounding * (at.abs() + error)


def approximate(comparison: QueryGallery, dtype: torch.dtype) -> Approximation:
    """Rows rounded to `dtype`, with their error."""
    if dtype == torch.int8:
        return _whole(comparison)
    euclidean = comparison.distance == "euclidean"
    centre = _mean(comparison.gallery) if euclidean else None
    y, y_norm, y_error, y_lost = _rounded(comparison.gallery, centre, dtype, as_query=False)
    x, x_norm, x_error = y, y_norm, y_error
    if not comparison.same or euclidean:
        x, x_norm, x_error, _ = _rounded(comparison.queries, centre, dtype, as_query=True)
    longest, coarsest = float(y_norm.max()), float(y_error.max())
    d = x.shape[1]
    unit = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps / 2
    summed = 1.01 * (d + 8) * unit  # whatever the order of the d products in a sum
    summing = summed * (x_norm + x_error) * (longest + coarsest)
    error = x_error * longest + (x_norm + x_error) * coarsest + summing + y_lost
    vanished = _vanished(dtype, d, x_norm, longest)
    reach = 1.1 * float(x_norm.max()) * longest + float(vanished.max()) if x_norm.numel() else 1.0
    # canonical scores, and thresholds worked out in float64, are rounded too
    tiny = _rounding_of_scores(d, x_norm, longest)
    error = error + tiny + vanished
    if dtype != torch.float64:
        error = error + 2.0**-38 * reach  # keys of sorted candidates hold the row beside the score (see Counting)
    offset = _squared_lengths(comparison.queries, centre) if centre is not None else torch.zeros_like(error)
    rounding = 1.01 * torch.finfo(dtype).eps / 2 if dtype == torch.bfloat16 else 0.0
    return Approximation(comparison, x, _padded(y), error, summing, tiny, offset, rounding, reach, centre)


def _whole(comparison: QueryGallery) -> Approximation:
    """Rows as whole numbers from -127 to 127, of queries each in a scale of its own, for products in int32."""
    if comparison.distance == "euclidean":
        raise ValueError("rows of whole numbers have no room for squared lengths")
    x, x_scale, x_norm, x_error = whole_rows(comparison.queries)
    y, y_scale, y_norm, y_error = whole_rows(comparison.gallery, in_one_scale=True)
    longest, coarsest = float(y_norm.max()), float(y_error.max())
    d = x.shape[1]
    vanished = _vanished(torch.float32, d, x_norm, longest)
    products = 1.1 * (x_norm + x_error) * (longest + coarsest)
    reach = float(products.max()) + float(vanished.max()) if x_norm.numel() else 1.0
    tiny = _rounding_of_scores(d, x_norm, longest)
    error = x_error * longest + (x_norm + x_error) * coarsest + tiny + vanished + 2.0**-38 * reach
    unit = (x_scale * y_scale[0]).float()  # where float32 has no such small number, products are less than the error
    nothing = torch.zeros_like(error)
    # of a product in float32: the number, its unit and what they make are rounded
    return Approximation(comparison, x, _padded(y), error, nothing, tiny, nothing, 2.0**-22, reach, None, unit)


def _rounding_of_scores(d: int, norm: Tensor, longest: float) -> Tensor:
    """How far a float64 score of each query may be from that of exact arithmetic, (Q,), several times over."""
    return 4 * (d + 8) * torch.finfo(torch.float64).eps * norm * longest + _vanished(torch.float64, d, norm, longest)


def _vanished(dtype: torch.dtype, d: int, norm: Tensor, longest: float) -> Tensor:
    """The most that a sum of d products loses where factors or products are below the smallest normal number, (Q,)."""
    smallest = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).tiny
    return d * smallest * (1.0 + norm + longest)


def _padded(rows: Tensor) -> Tensor:
    missing = -rows.shape[0] % PAD
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows


def _mean(rows: Tensor) -> Tensor:
    return rows.sum(dim=0, dtype=torch.float64) / rows.shape[0]


def _rounded(
    rows: Tensor, centre: Tensor | None, dtype: torch.dtype, as_query: bool
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Rounded rows, with three columns for the squared length where there is a centre; their lengths, what rounding
    took from each, and the most that was lost of a squared length."""
    n, d = rows.shape
    if centre is None:
        found = rows.to(dtype)
        norm: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        lossless = dtype == rows.dtype or dtype == torch.float64
        # the difference of a number and its rounding is a number of the same type: nothing is lost in it
        error = torch.zeros_like(norm) if lossless else _distance(rows, found)
        return found, norm, error, 0.0
    found = torch.empty(n, d + 3, dtype=dtype, device=rows.device)
    norm = torch.empty(n, dtype=torch.float64, device=rows.device)
    error = torch.empty_like(norm)
    lost = 0.0
    for start in range(0, n, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        exact = rows[part].double() - centre
        squared = exact.square().sum(dim=1)
        if as_query:
            exact *= 2.0
        close = exact.to(dtype)
        found[part, :d] = close
        norm[part] = torch.linalg.vector_norm(exact, dim=1)
        error[part] = torch.linalg.vector_norm(exact.sub_(close), dim=1)
        if as_query:
            found[part, d:] = 1.0
            norm[part] = (norm[part].square() + 3.0).sqrt()
            continue
        norm[part] = (norm[part].square() + squared.square()).sqrt() * 1.01
        rest = squared.neg()
        for column in range(d, d + 3):
            found[part, column] = rest.to(dtype)
            rest = rest - found[part, column].double()
        lost = max(lost, float(rest.abs().max()))
    return found, norm, error, lost


def whole_rows(rows: Tensor, in_one_scale: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows (N, d) int8, the scale of each (N,), its length and how far it is from scale * whole numbers; float64."""
    found = torch.empty(rows.shape, dtype=torch.int8, device=rows.device)
    largest = rows.abs().amax(dim=1).double()
    if in_one_scale:
        largest = largest.max().expand_as(largest)
    scale = torch.where(largest > 0, largest / 127, 1.0)
    norm, error = torch.empty_like(scale), torch.empty_like(scale)
    step = max(1, _ENTRIES_AT_ONCE // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        part = slice(start, start + step)
        exact = rows[part].double()
        close = (exact / scale[part, None]).round_()
        found[part] = close.to(torch.int8)
        norm[part] = torch.linalg.vector_norm(exact, dim=1)
        error[part] = torch.linalg.vector_norm(exact.sub_(close.mul_(scale[part, None])), dim=1)
    return found, scale, norm, error


def _squared_lengths(rows: Tensor, centre: Tensor) -> Tensor:
    found = torch.empty(rows.shape[0], dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[0], _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        found[part] = (rows[part].double() - centre).square().sum(dim=1)
    return found


def _distance(rows: Tensor, close: Tensor) -> Tensor:
    """|row - close| of each row, (N,) float64."""
    found = torch.empty(rows.shape[0], dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[0], _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        found[part] = torch.linalg.vector_norm(rows[part] - close[part], dim=1, dtype=torch.float64)
    return found


def thresholds(approximation: Approximation, which: Tensor, items: Tensor, runs: Tensor) -> Tensor:
    """Where gallery rows `items` (B, R) of queries `which` (B,) stand among the products, in float64, (B, R).

    runs: (B,) ascending; queries of one run share their row of items, and one product serves them all.
    """
    _, length = torch.unique_consecutive(runs, return_counts=True)
    entries = (items.shape[1] + int(length.max())) * approximation.comparison.gallery.shape[1]
    runs_at_once = max(1, _THRESHOLD_ENTRIES // entries)
    found, first = [], 0
    for part in torch.split(length, runs_at_once):
        rows = slice(first, first + int(part.sum()))
        found.append(_thresholds(approximation, which[rows], items[rows], part))
        first = rows.stop
    return torch.cat(found)


def _thresholds(approximation: Approximation, which: Tensor, items: Tensor, length: Tensor) -> Tensor:
    """For runs of these lengths, padded to the longest."""
    comparison, centre = approximation.comparison, approximation.centre
    first = length.cumsum(0) - length
    run = torch.arange(length.shape[0], device=which.device).repeat_interleave(length)
    place = torch.arange(which.shape[0], device=which.device) - first[run]
    padded = which.new_zeros(length.shape[0], int(length.max()))
    padded[run, place] = which
    left, right = comparison.queries[padded].double(), comparison.gallery[items[first]].double()
    if centre is None:
        return torch.bmm(left, right.transpose(1, 2))[run, place]
    left, right = left.sub_(centre), right.sub_(centre)
    lengths = right.square().sum(dim=2).unsqueeze(1)
    return torch.baddbmm(lengths, left, right.transpose(1, 2), beta=-1.0, alpha=2.0)[run, place]


@contextmanager
def full_products(device: torch.device) -> Iterator[None]:
    """No gradients, no autocast, and float32 products in float32, whatever the user's settings are."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
