"""From embeddings to scores: the measure of a loss, for all pairs, for a tile of them, or for mined tuples."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs import PairBatch, Quadruplets, Relation, Triplets, dot, normalize, squared_euclidean
from kinfold.pairs.gather import add_gathered_gradients, gather_dot, gather_squared_euclidean
from kinfold.pairs.measures import (
    center,
    normalize_and_center,
    safe_reciprocal,
    safe_sqrt,
    snr_of_centered,
    squared_sphere_distance,
)
from kinfold.pairs.near_pairs import PairFilter, list_near, near_limit, too_many_to_gather

Measure: TypeAlias = Literal["cosine", "dot", "euclidean", "squared-euclidean", "snr"]


@dataclass(frozen=True)
class ScoreTile:
    """Raw scores of a tile of the matrix of pairs, without a graph, and what their derivative needs.

    Attributes:
        raw: (r, c).
        x, y: Operands of the rows (r, d) and of the columns (c, d).
        near: Rows and columns (T,) of the pairs whose distance was computed from differences.
    """

    raw: Tensor
    x: Tensor
    y: Tensor
    near: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Scoring:
    """A measure of pairs, on unit vectors or on embeddings as they are.

    Two steps: the *raw score* is a similarity, a squared distance or a variance ratio. The *score* is what the loss
    works on: the raw score, or its square root for the measure "euclidean".

    Attributes:
        measure: Name of the measure.
        unit: Whether embeddings are normalized first.
    """

    measure: Measure
    unit: bool

    def make_operands(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Return anchors and references, normalized or centered as the measure needs them."""
        x = self._make_operand(batch.anchors)
        return x, x if batch.symmetric else self._make_operand(batch.references)

    def _make_operand(self, x: Tensor) -> Tensor:
        if self.measure == "snr":
            return normalize_and_center(x) if self.unit else center(x)
        return normalize(x) if self.unit else x

    def center_operands(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Subtract the mean of y from both, if only their distances matter: smaller numbers lose fewer digits."""
        if not self._is_distance or self.unit or y.shape[0] == 0:
            return x, y
        mean = y.detach().mean(dim=0)
        centered = x - mean
        return centered, centered if y is x else y - mean

    def measure_matrix(self, x: Tensor, y: Tensor, relation: Relation) -> Tensor:
        """Raw scores of all pairs, (B, R), from one product, with a graph.

        Distances of pairs of the relation that nearly coincide are computed from differences.
        """
        if self._is_distance:
            measure = squared_sphere_distance if self.unit else squared_euclidean
            return measure(x, y, pair_filter=relation.includes)
        return snr_of_centered(x, y) if self.measure == "snr" else dot(x, y)

    @torch.no_grad()
    def measure_tile(self, x: Tensor, y: Tensor, includes: PairFilter) -> ScoreTile:
        """Compute what `measure_matrix` does, without a graph; `add_gradients` computes its derivative.

        Args:
            x, y: Operands of the rows (r, d) and of the columns (c, d).
            includes: Says which pairs of the tile are used, see `Relation.includes`.
        """
        if self.measure == "snr":
            return ScoreTile(snr_of_centered(x, y), x, y)
        if not self._is_distance:
            return ScoreTile(dot(x, y), x, y)
        limit: Tensor | float
        if self.unit:
            raw, limit = torch.addmm(x.new_full((1, 1), 2.0), x, y.T, alpha=-2.0), near_limit(1.0, x.dtype)
        else:
            length = torch.linalg.vecdot(x, x)[:, None]
            raw = torch.addmm(length + torch.linalg.vecdot(y, y), x, y.T, alpha=-2.0).clamp_(min=0.0)
            limit = near_limit(length, x.dtype)
        i, j = list_near(raw, limit, includes)
        if i.shape[0] == 0:
            return ScoreTile(raw, x, y)
        if too_many_to_gather(i, x, raw):  # nearly all rows coincide: digits instead of differences
            raw_lengths = Scoring(self.measure, unit=False)  # unit vectors have length one up to rounding only
            exact = raw_lengths.measure_tile(x.double(), y.double(), lambda i, j: torch.zeros_like(i, dtype=torch.bool))
            return ScoreTile(torch.where(raw < limit, exact.raw.to(raw.dtype), raw), exact.x, exact.y)
        raw[i, j] = gather_squared_euclidean(x, y, i, j)
        return ScoreTile(raw, x, y, (i, j))

    def add_gradients(
        self, tile: ScoreTile, outer: Tensor, x_gradient: Tensor | None, y_gradient: Tensor | None
    ) -> None:
        """Add the gradients by the operands of a tile, given those by its raw scores.

        Args:
            tile: The tile.
            outer: Gradient by the raw scores, (r, c); may be changed.
            x_gradient: Where the gradient by the rows (r, d) is added; None if it is not needed.
            y_gradient: Where the gradient by the columns (c, d) is added. The tensor `x_gradient` itself, if rows and
                columns are the same operand: one product instead of two.
        """
        x, y = tile.x, tile.y
        if x.dtype != outer.dtype:  # the tile was computed with more digits: its gradients as well
            exact = [None if t is None else torch.zeros_like(t, dtype=x.dtype) for t in (x_gradient, y_gradient)]
            columns = exact[0] if x_gradient is y_gradient else exact[1]
            Scoring(self.measure, unit=False).add_gradients(tile, outer.to(x.dtype), exact[0], columns)
            for total, part in zip((x_gradient, None if x_gradient is y_gradient else y_gradient), exact, strict=True):
                if total is not None and part is not None:
                    total += part.to(total.dtype)
            return
        if tile.near is not None:
            i, j = tile.near
            left = torch.zeros_like(x) if x_gradient is None else x_gradient
            right = torch.zeros_like(y) if y_gradient is None else y_gradient
            add_gathered_gradients(left, right, x, y, i, j, outer[i, j], squared=True)
            outer = outer.index_put((i, j), outer.new_zeros(()))
        if self.measure == "snr":
            self._add_snr_gradients(tile, outer, x_gradient, y_gradient)
            return
        scale = -2.0 if self._is_distance else 1.0
        if y_gradient is not None and x_gradient is y_gradient:
            outer = outer + outer.T
            y_gradient = None
        if x_gradient is not None:
            x_gradient.addmm_(outer, y, alpha=scale)
            if self._is_distance and not self.unit:  # d|x - y|^2 / dx = 2 x - 2 y
                x_gradient.addcmul_(outer.sum(dim=1)[:, None], x, value=2.0)
        if y_gradient is not None:
            y_gradient.addmm_(outer.T, x, alpha=scale)
            if self._is_distance and not self.unit:
                y_gradient.addcmul_(outer.sum(dim=0)[:, None], y, value=2.0)

    def _add_snr_gradients(
        self, tile: ScoreTile, outer: Tensor, x_gradient: Tensor | None, y_gradient: Tensor | None
    ) -> None:
        """raw = |x - y|^2 / |x|^2 = 1 + (|y|^2 - 2 x.y) / |x|^2"""
        x, y = tile.x, tile.y
        inverse = safe_reciprocal(torch.linalg.vecdot(x, x))[:, None]  # zero for a row whose scores are zero
        scaled = outer * inverse
        is_same = x_gradient is not None and x_gradient is y_gradient
        if x_gradient is not None:
            x_gradient.addmm_(scaled + scaled.T if is_same else scaled, y, alpha=-2.0)
            excess = torch.linalg.vecdot(outer, tile.raw)[:, None] - outer.sum(dim=1, keepdim=True) * (inverse > 0)
            x_gradient.addcmul_(excess * inverse, x, value=-2.0)
        if y_gradient is not None:
            if not is_same:
                y_gradient.addmm_(scaled.T, x, alpha=-2.0)
            y_gradient.addcmul_(scaled.sum(dim=0)[:, None], y, value=2.0)

    def measure_tuples(self, x: Tensor, y: Tensor, tuples: Triplets | Quadruplets) -> Tensor:
        """Raw scores of (a, p), (a, n) and, for quadruplets, (n, fourth): (2 or 3, T).

        Distances are computed from differences, not from products.
        """
        raw = [
            self.measure_pairs(x, y, tuples.anchor, tuples.positive),
            self.measure_pairs(x, y, tuples.anchor, tuples.negative),
        ]
        if isinstance(tuples, Quadruplets):
            raw.append(self.measure_pairs(y, y, tuples.negative, tuples.fourth))
        return torch.stack(raw)

    def measure_pairs(self, x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Raw scores of listed pairs, row i of x with row j of y, with a graph."""
        if not (self._is_distance or self.measure == "snr"):
            return gather_dot(x, y, i, j)
        squared = gather_squared_euclidean(x, y, i, j)
        return squared * safe_reciprocal(torch.linalg.vecdot(x, x))[i] if self.measure == "snr" else squared

    def to_scores(self, raw: Tensor) -> Tensor:
        """Convert raw scores to the scores that the loss works on."""
        return safe_sqrt(raw) if self.measure == "euclidean" else raw

    def score_similarity(self, similarity: float) -> float:
        """Return the score of a pair of unit vectors with this cosine."""
        if not self._is_distance:
            return similarity
        return math.sqrt(2.0 - 2.0 * similarity) if self.measure == "euclidean" else 2.0 - 2.0 * similarity

    @property
    def similarity_slope(self) -> float | None:
        """Derivative of the raw score by the similarity of the pair; None if the similarity does not determine it."""
        if self.measure == "snr" or (self._is_distance and not self.unit):
            return None
        return -2.0 if self._is_distance else 1.0  # on the unit sphere the squared distance is 2 - 2 s

    @property
    def is_symmetric(self) -> bool:
        """Whether the score of (x, y) is that of (y, x)."""
        return self.measure != "snr"

    @property
    def _is_distance(self) -> bool:
        return self.measure in ("euclidean", "squared-euclidean")
