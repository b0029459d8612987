"""From embeddings to scores: the measure of a loss, for all pairs, for a tile of them, or for mined tuples."""

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs import PairBatch, Quadruplets, Relation, Triplets, dot, normalize, squared_euclidean
from kinfold.pairs.distances import Distance, read_distance
from kinfold.pairs.gather import add_gathered_gradients, gather_dot, gather_minkowski, gather_squared_euclidean
from kinfold.pairs.hyperbolic import (
    Hyperbolic,
    add_excess_gradients,
    limit_near,
    measure_excess,
    measure_time,
    multiply_points,
)
from kinfold.pairs.measures import (
    center,
    safe_reciprocal,
    safe_sqrt,
    snr_of_centered,
    squared_sphere_distance,
)
from kinfold.pairs.near_pairs import PairFilter, list_near, near_limit, too_many_to_gather

Measure: TypeAlias = Literal["cosine", "dot", "euclidean", "squared-euclidean", "snr", "hyperbolic"]
Form: TypeAlias = Literal["plain", "negated", "squared"]


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

    Two steps: the *raw score* is a similarity, a squared distance, a variance ratio, or half of a squared Minkowski
    distance. The *score* is what the loss works on: the raw score, or the distance for the measures "euclidean" and
    "hyperbolic".

    Attributes:
        measure: Name of the measure.
        unit: Whether embeddings are normalized first.
        form: "negated" for a distance in a loss on similarities, "squared" for one in a loss on squared distances.
        hyperbolic: Its numbers, for the measure "hyperbolic".
    """

    measure: Measure
    unit: bool
    form: Form = "plain"
    hyperbolic: Hyperbolic | None = None

    def make_operands(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Return anchors and references, normalized or centered as the measure needs them."""
        x = self._make_operand(batch.anchors)
        return x, x if batch.symmetric else self._make_operand(batch.references)

    def _make_operand(self, x: Tensor) -> Tensor:
        if self.measure == "snr":
            return center(normalize(x)) if self.unit else center(x)
        if self.hyperbolic is not None:
            return self.hyperbolic.lift(x)
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
        if self.hyperbolic is not None:
            return measure_excess(x, y, relation.includes)
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
        if not self._is_distance and self.hyperbolic is None:
            return ScoreTile(dot(x, y), x, y)
        limit: Tensor | float
        if self.hyperbolic is not None:
            raw, limit = multiply_points(x, y), limit_near(measure_time(x))
        elif self.unit:
            raw, limit = torch.addmm(x.new_full((1, 1), 2.0), x, y.T, alpha=-2.0), near_limit(1.0, x.dtype)
        else:
            length = torch.linalg.vecdot(x, x)[:, None]
            raw = torch.addmm(torch.linalg.vecdot(y, y), x, y.T, alpha=-2.0).add_(length).clamp_(min=0.0)
            limit = near_limit(length, x.dtype)
        i, j = list_near(raw, limit, includes)
        if i.shape[0] == 0:
            return ScoreTile(raw, x, y)
        if too_many_to_gather(i, x, raw):  # nearly all rows coincide: digits instead of differences
            exact = self._in_double.measure_tile(
                x.double(), y.double(), lambda i, j: torch.zeros_like(i, dtype=torch.bool)
            )
            return ScoreTile(torch.where(raw < limit, exact.raw.to(raw.dtype), raw), exact.x, exact.y)
        gather = gather_squared_euclidean if self.hyperbolic is None else gather_minkowski
        raw[i, j] = gather(x, y, i, j)
        return ScoreTile(raw, x, y, (i, j))

    @property
    def _in_double(self) -> "Scoring":
        """The measure of a tile that is computed with more digits: unit vectors have length one up to rounding only."""
        return replace(self, unit=False)

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
            self._in_double.add_gradients(tile, outer.to(x.dtype), exact[0], columns)
            for total, part in zip((x_gradient, None if x_gradient is y_gradient else y_gradient), exact, strict=True):
                if total is not None and part is not None:
                    total += part.to(total.dtype)
            return
        if tile.near is not None:
            i, j = tile.near
            left = torch.zeros_like(x) if x_gradient is None else x_gradient
            right = torch.zeros_like(y) if y_gradient is None else y_gradient
            form: Literal["squared", "minkowski"] = "squared" if self.hyperbolic is None else "minkowski"
            add_gathered_gradients(left, right, x, y, i, j, outer[i, j], form)
            outer = outer.index_put((i, j), outer.new_zeros(()))
        if self.hyperbolic is not None:
            add_excess_gradients(x, y, outer, x_gradient, y_gradient)
            return
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
        if self.hyperbolic is not None:
            return gather_minkowski(x, y, i, j)
        if not (self._is_distance or self.measure == "snr"):
            return gather_dot(x, y, i, j)
        squared = gather_squared_euclidean(x, y, i, j)
        return squared * safe_reciprocal(torch.linalg.vecdot(x, x))[i] if self.measure == "snr" else squared

    def to_scores(self, raw: Tensor) -> Tensor:
        """Convert raw scores to the scores that the loss works on."""
        if self.hyperbolic is not None:
            scores = self.hyperbolic.to_distance(raw)
        else:
            scores = safe_sqrt(raw) if self.measure == "euclidean" else raw
        if self.form == "plain":
            return scores
        return -scores if self.form == "negated" else scores.square()

    def score_similarity(self, similarity: float) -> float:
        """Return the score of a pair of unit vectors with this cosine."""
        if self.similarity_slope is None:
            raise ValueError(f"a pair with the cosine {similarity:g} has no one distance of this kind: {self.measure}")
        if not self._is_distance:
            return similarity
        return math.sqrt(2.0 - 2.0 * similarity) if self.measure == "euclidean" else 2.0 - 2.0 * similarity

    @property
    def similarity_slope(self) -> float | None:
        """Derivative of the raw score by the similarity of the pair; None if the similarity does not determine it."""
        if self.measure in ("snr", "hyperbolic") or (self._is_distance and not self.unit):
            return None
        return -2.0 if self._is_distance else 1.0  # on the unit sphere the squared distance is 2 - 2 s

    @property
    def is_symmetric(self) -> bool:
        """Whether the score of (x, y) is that of (y, x)."""
        return self.measure != "snr"

    @property
    def _is_distance(self) -> bool:
        return self.measure in ("euclidean", "squared-euclidean")


def choose_scoring(loss: str, measure: Measure, distance: Distance) -> Scoring:
    """Return the measure of a loss for its option `distance`.

    Args:
        loss: Name of the class, for the message.
        measure: Its own measure: what the formula is of.
        distance: The option.

    Raises:
        ValueError: The formula is of distances, and this is none.
    """
    chosen = read_distance(distance)
    is_similarity, is_squared = measure in ("cosine", "dot"), measure == "squared-euclidean"
    if chosen.name == "cosine":
        return Scoring("cosine" if is_similarity else measure, unit=True)
    if chosen.name == "dot":
        if not is_similarity:
            raise ValueError(
                f"the formula of {loss} is of distances, and a dot product is none, as it has no smallest value: use "
                "cosine, euclidean, snr or hyperbolic"
            )
        return Scoring("dot", unit=False)
    form: Form = "negated" if is_similarity else "squared" if is_squared else "plain"
    if chosen.name == "euclidean":
        if is_squared:
            return Scoring("squared-euclidean", unit=False)
        return Scoring("euclidean", False, form)
    if chosen.name == "snr":
        return Scoring("snr", True, form)
    return Scoring("hyperbolic", False, form, chosen.hyperbolic)
