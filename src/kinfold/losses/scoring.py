"""From embeddings to scores: the measure of a loss, for all pairs or for the pairs of mined tuples."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs import PairBatch, Quadruplets, Relation, Triplets, dot, normalize, squared_euclidean
from kinfold.pairs.gather import gather_dot, gather_squared_euclidean
from kinfold.pairs.measures import (
    center,
    normalize_and_center,
    safe_reciprocal,
    safe_sqrt,
    snr_of_centered,
    squared_sphere_distance,
)

Measure: TypeAlias = Literal["cosine", "dot", "euclidean", "squared-euclidean", "snr"]


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

    def measure_matrix(self, x: Tensor, y: Tensor, relation: Relation) -> Tensor:
        """Raw scores of all pairs, (B, R), from one product.

        Distances of pairs of the relation that nearly coincide are computed from differences.
        """
        if self._is_distance:
            measure = squared_sphere_distance if self.unit else squared_euclidean
            return measure(x, y, pair_filter=relation.includes)
        return snr_of_centered(x, y) if self.measure == "snr" else dot(x, y)

    def measure_tuples(self, x: Tensor, y: Tensor, tuples: Triplets | Quadruplets) -> Tensor:
        """Raw scores of (a, p), (a, n) and, for quadruplets, (n, fourth): (2 or 3, T).

        Distances are computed from differences, not from products.
        """
        raw = [
            self._measure_pairs(x, y, tuples.anchor, tuples.positive),
            self._measure_pairs(x, y, tuples.anchor, tuples.negative),
        ]
        if isinstance(tuples, Quadruplets):
            raw.append(self._measure_pairs(y, y, tuples.negative, tuples.fourth))
        return torch.stack(raw)

    def _measure_pairs(self, x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Raw scores of listed pairs, row i of x with row j of y."""
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
    def _is_distance(self) -> bool:
        return self.measure in ("euclidean", "squared-euclidean")
