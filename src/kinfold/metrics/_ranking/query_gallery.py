"""Rows as a distance compares them, and the exact score of a pair, which decides every ranking.

The exact score is the float64 dot product of the rows (unit rows for the cosine) or minus their float64 squared
distance; higher is closer. Rows are float32, or float64 if they were passed as float64.

Hyperbolic rows are points of the hyperboloid in float64, (u, -u_0) for queries and (v, v_0) for the gallery, so that a
product is u.v - u_0 v_0 = -m - 1. The exact score is -m, computed from differences (see `kinfold.pairs.hyperbolic`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.rows import check_rows, gather_row_pairs, normalize_rows
from kinfold.pairs.distances import read_distance
from kinfold.pairs.gather import measure_minkowski
from kinfold.pairs.hyperbolic import Hyperbolic, measure_time
from kinfold.registry import suggest

Distance: TypeAlias = Literal["cosine", "dot", "euclidean", "hyperbolic"] | Hyperbolic | Mapping[str, Any]
"""How two embeddings are compared; { name = "hyperbolic", curvature = 0.2 } in a recipe."""

DISTANCES = ("cosine", "dot", "euclidean", "hyperbolic")


@dataclass(frozen=True)
class QueryGallery:
    """Queries and the gallery that they are compared with.

    Args:
        queries: (Q, d), of unit length for the cosine.
        gallery: (N, d), the same tensor as `queries` for a set against itself.
        distance: How rows are compared, one of `DISTANCES`.
        is_same_set: Whether the gallery is the set of queries itself.
        scale: The power of two by which the rows were divided, for rows whose squares would overflow or vanish.
        hyperbolic: The numbers of the hyperbolic distance.
    """

    queries: Tensor
    gallery: Tensor
    distance: str
    is_same_set: bool
    scale: float
    hyperbolic: Hyperbolic | None = None

    @property
    def size(self) -> int:
        """The number of gallery rows."""
        return self.gallery.shape[0]

    @property
    def vectors(self) -> Tensor:
        """The queries as vectors, for clusters and spectra; hyperbolic ones as embeddings of at most the radius."""
        if self.hyperbolic is None:
            return self.queries
        return self.hyperbolic.flatten(self.queries[:, :-1]).to(torch.float32)

    @cached_property
    def row_ids(self) -> Tensor:
        """A number for each gallery row, (N,), the same for equal rows."""
        ids: Tensor = torch.unique(self.gallery, dim=0, return_inverse=True)[1]
        return ids

    def exact_scores(self, i: Tensor, j: Tensor) -> Tensor:
        """Return the exact scores of query i[t] and gallery row j[t], (T,) float64.

        The same two rows have the same score, bit for bit, wherever they are.
        """
        scores = torch.empty(i.shape[0], dtype=torch.float64, device=self.gallery.device)
        terms = scores.new_empty(0)
        for part, left, right in gather_row_pairs(self.queries, self.gallery, i, j, tuning.EXACT_PAIR_ENTRIES):
            if terms.shape != left.shape:
                terms = torch.empty_like(left, dtype=torch.float64)
            if self.hyperbolic is not None:
                scores[part] = -measure_minkowski(left[:, :-1], right[:, :-1])
                continue
            terms.copy_(left)
            if self.distance == "euclidean":
                terms.sub_(right).square_()
            else:
                terms.mul_(right)
            torch.sum(terms, dim=-1, out=scores[part])
        if self.distance == "euclidean":
            scores.neg_()
        return scores

    def score_matrix(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the scores (B, C) of some rows of the queries and of the gallery, in their precision."""
        if self.distance == "euclidean":
            return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square_().neg_()
        products = x @ y.T
        return products if self.hyperbolic is None else products.add_(1.0).clamp_(max=0.0)

    @property
    def has_distances(self) -> bool:
        """Whether users read distances, smaller ones for nearer rows."""
        return self.distance in ("euclidean", "hyperbolic")

    def convert_scores(self, scores: Tensor) -> Tensor:
        """Convert scores to what users read: similarities, or distances for "euclidean" and "hyperbolic"."""
        if self.hyperbolic is not None:
            return torch.where(scores < 0, self.hyperbolic.to_distance(scores.neg()), 0.0 * scores)
        if self.distance == "euclidean":
            return scores.neg().clamp(min=0.0).sqrt() * self.scale
        return scores * self.scale**2 if self.distance == "dot" else scores


def build_query_gallery(queries: Tensor, gallery: Tensor | None, distance: Distance) -> QueryGallery:
    """Check rows and prepare them for comparison.

    Args:
        queries: (Q, d).
        gallery: (N, d), or None to compare the queries with each other.
        distance: "cosine", "dot", "euclidean" or "hyperbolic".

    Raises:
        ValueError: The distance is unknown, a row is not finite, or the sets do not fit together.
    """
    is_name = isinstance(distance, str)
    if is_name and distance not in DISTANCES:
        near = suggest(str(distance), DISTANCES)
        raise ValueError(f"distance must be one of {', '.join(DISTANCES)}, got {distance!r}{near}")
    chosen = read_distance(distance)
    check_rows(queries, "embeddings")
    if gallery is not None:
        check_rows(gallery, "gallery")
        if gallery.shape[1] != queries.shape[1]:
            raise ValueError(
                f"embeddings have {queries.shape[1]} features and the gallery {gallery.shape[1]}: "
                "both must come from the same model"
            )
        if gallery.shape[0] == 0:
            raise ValueError("the gallery has no rows: pass at least one")
    x = _to_float(queries)
    y = x if gallery is None else _to_float(gallery)
    if chosen.hyperbolic is not None:
        u, v = (chosen.hyperbolic.lift(rows.double()) for rows in (x, y))
        u, v = torch.cat([u, -measure_time(u)[:, None]], dim=1), torch.cat([v, measure_time(v)[:, None]], dim=1)
        return QueryGallery(u, v, "hyperbolic", gallery is None, 1.0, chosen.hyperbolic)
    if chosen.name == "cosine":
        x = normalize_rows(x)
        return QueryGallery(x, x if gallery is None else normalize_rows(y), "cosine", gallery is None, 1.0)
    scale = _choose_scale(x, y)
    if scale != 1.0:
        x = _divide(x, scale)
        y = x if gallery is None else _divide(y, scale)
        if x.dtype != y.dtype:
            x, y = x.double(), y.double()
    return QueryGallery(x, y, chosen.name, gallery is None, scale)


def _to_float(x: Tensor) -> Tensor:
    x = x.detach()
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def _choose_scale(x: Tensor, y: Tensor) -> float:
    """Return a power of two near the largest entry if squares would overflow or vanish in float32, else 1."""
    largest = max((float(part.abs().max()) for part in (x, y) if part.numel()), default=1.0)
    if largest == 0.0 or 2.0**-20 < largest < 2.0**20:
        return 1.0
    return math.ldexp(1.0, min(1000, max(-1000, math.frexp(largest)[1])))


def _divide(rows: Tensor, scale: float) -> Tensor:
    """Divide rows by a power of two, in float64 if some results would be too small for float32."""
    divided = rows / scale
    lossless = rows.dtype == torch.float64 or torch.equal(divided.double() * scale, rows.double())
    return divided if lossless else rows.double() / scale
