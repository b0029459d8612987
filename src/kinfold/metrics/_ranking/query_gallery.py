"""Rows as a distance compares them, and the canonical score of a pair, which decides every ranking.

The canonical score is the float64 dot product of the rows (unit rows for the cosine) or minus their float64 squared
distance; higher is closer. Rows are float32, or float64 where they were given so. Faster products only propose
candidates; where their error could matter, the canonical score is what counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import torch
from torch import Tensor

Distance: TypeAlias = Literal["cosine", "dot", "euclidean"]
DISTANCES = ("cosine", "dot", "euclidean")

_ROWS_AT_ONCE = 1 << 16
_PAIR_ENTRIES_AT_ONCE = 1 << 18  # of the float64 copies of a few pairs: they stay in the processor's cache


@dataclass(frozen=True)
class QueryGallery:
    """Queries (Q, d) against a gallery (N, d), scaled by a power of two where their numbers are far from one.

    same: the gallery is the set of queries itself.
    """

    queries: Tensor
    gallery: Tensor
    distance: Distance
    same: bool
    scale: float  # the rows were divided by this

    @property
    def size(self) -> int:
        return self.gallery.shape[0]

    @cached_property
    def distinct(self) -> Tensor:
        """A number for each gallery row, (N,), the same for equal rows."""
        found: Tensor = torch.unique(self.gallery, dim=0, return_inverse=True)[1]
        return found

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Canonical scores of query i[t] and gallery row j[t], (T,) float64: the same bits for the same two rows,
        wherever they stand."""
        found = torch.empty(i.shape[0], dtype=torch.float64, device=self.gallery.device)
        exact = found.new_empty(0)
        for part, left, right in gather_row_pairs(self.queries, self.gallery, i, j, _PAIR_ENTRIES_AT_ONCE):
            if exact.shape != left.shape:
                exact = torch.empty_like(left, dtype=torch.float64)
            exact.copy_(left)
            if self.distance == "euclidean":
                exact.sub_(right).square_()
            else:
                exact.mul_(right)
            torch.sum(exact, dim=-1, out=found[part])
        if self.distance == "euclidean":
            found.neg_()
        return found

    def values(self, scores: Tensor) -> Tensor:
        """Canonical scores as users read them: similarities, or distances."""
        if self.distance == "euclidean":
            return scores.neg().clamp(min=0.0).sqrt() * self.scale
        return scores * self.scale**2 if self.distance == "dot" else scores


def prepare_rows(queries: Tensor, gallery: Tensor | None, distance: Distance) -> QueryGallery:
    """Check and prepare rows for comparison."""
    if distance not in DISTANCES:
        raise ValueError(f"distance must be one of {', '.join(DISTANCES)}, got {distance!r}")
    check_rows(queries, "embeddings")
    if gallery is not None:
        check_rows(gallery, "gallery")
        if gallery.shape[1] != queries.shape[1]:
            raise ValueError(
                f"embeddings have {queries.shape[1]} features and the gallery {gallery.shape[1]}: "
                "both must come from the same model"
            )
        if gallery.shape[0] == 0:
            raise ValueError("the gallery has no rows: there is nothing to find")
    x = _floating(queries)
    y = x if gallery is None else _floating(gallery)
    if distance == "cosine":
        x = normalize_rows(x)
        return QueryGallery(x, x if gallery is None else normalize_rows(y), distance, gallery is None, 1.0)
    scale = _scale(x, y)
    if scale != 1.0:
        x = _divided(x, scale)
        y = x if gallery is None else _divided(y, scale)
        if x.dtype != y.dtype:
            x, y = x.double(), y.double()
    return QueryGallery(x, y, distance, gallery is None, scale)


def gather_row_pairs(
    lefts: Tensor, rights: Tensor, i: Tensor, j: Tensor, entries: int
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Rows lefts[i[t]] and rights[j[t]] of a part of the pairs at a time, some `entries` numbers of each; what was
    given before is overwritten."""
    d = lefts.shape[1]
    step = max(1, min(i.shape[0], entries // max(1, d)))
    # rows gathered into memory that is there already: three times as fast as by an index
    left, right = lefts.new_empty(step, d), rights.new_empty(step, d)
    for start in range(0, i.shape[0], step):
        part = slice(start, min(start + step, i.shape[0]))
        x, y = left[: part.stop - start], right[: part.stop - start]
        torch.index_select(lefts, 0, i[part], out=x)
        torch.index_select(rights, 0, j[part], out=y)
        yield part, x, y


def check_rows(rows: Tensor, name: str) -> None:
    """Refuse what is not a matrix of finite numbers, naming the first bad row."""
    if not isinstance(rows, Tensor) or rows.dim() != 2:
        shape = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(f"{name} must be a matrix (rows, features), got {shape}")
    if rows.is_complex():
        raise ValueError(f"{name} must be real numbers, got {rows.dtype}")
    for start in range(0, rows.shape[0], _ROWS_AT_ONCE):
        # a sum is finite exactly when all entries are, unless it overflows: then look again
        part = rows[start : start + _ROWS_AT_ONCE]
        if bool(part.sum(dim=1).isfinite().all()):
            continue
        bad = ~part.isfinite().all(dim=1)
        if bool(bad.any()):
            row = start + int(bad.nonzero()[0])
            raise ValueError(
                f"row {row} (counted from 0) of {name} holds NaN or infinite values "
                f"({int(bad.sum()):,} such from there on): "
                "find out why the model gave them, or leave those rows out"
            )


def normalize_rows(x: Tensor) -> Tensor:
    """Rows (N, d) of length one, computed in float64; zero rows stay zero. The only normalization of the metrics.

    Each row is treated by itself: which other rows there are does not change it. A row whose length is one already, to
    the rounding of its type, is left as it is, so that doing it twice changes nothing.
    """
    unit = x
    for start in range(0, x.shape[0], _ROWS_AT_ONCE):
        part = x[start : start + _ROWS_AT_ONCE].contiguous()  # so that a row is summed in one order wherever it stands
        length: Tensor = torch.linalg.vector_norm(part, dim=1, keepdim=True, dtype=torch.float64)
        keep = (length - 1.0).abs() < 4 * torch.finfo(x.dtype).eps
        if bool(keep.all()):
            continue
        rows = part.double()
        extreme = (length < 1e-150) | (length > 1e150)  # squares vanished or overflowed
        if bool(extreme.any()):
            largest = rows.abs().amax(dim=1, keepdim=True)
            rows = rows / torch.where(extreme & (largest > 0), largest, 1.0)
            length = torch.where(extreme, torch.linalg.vector_norm(rows, dim=1, keepdim=True), length)
        if unit is x:
            unit = x.clone()
        unit[start : start + _ROWS_AT_ONCE] = (rows / torch.where(keep | (length == 0), 1.0, length)).to(x.dtype)
    return unit


def _floating(x: Tensor) -> Tensor:
    x = x.detach()
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def _scale(x: Tensor, y: Tensor) -> float:
    """A power of two near the largest entry where squares would overflow or vanish in float32, else 1."""
    largest = max((float(part.abs().max()) for part in (x, y) if part.numel()), default=1.0)
    if largest == 0.0 or 2.0**-20 < largest < 2.0**20:
        return 1.0
    return math.ldexp(1.0, min(1000, max(-1000, math.frexp(largest)[1])))


def _divided(rows: Tensor, scale: float) -> Tensor:
    """Rows divided by a power of two; in float64 where float32 has no number as small as some of the results."""
    divided = rows / scale
    lossless = rows.dtype == torch.float64 or torch.equal(divided.double() * scale, rows.double())
    return divided if lossless else rows.double() / scale
