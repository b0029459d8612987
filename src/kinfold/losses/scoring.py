"""From a view to scores: which measure a loss works on, for all pairs or for the sides of mined tuples."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs import Quadruplets, Relation, Triplets, View, dot, normalize, squared_euclidean
from kinfold.pairs.gathered import gathered_dot, gathered_squared_euclidean
from kinfold.pairs.measures import centred, centred_snr, centred_unit, inverse_signal, root, sphere_squared

Measure: TypeAlias = Literal["cosine", "dot", "euclidean", "squared-euclidean", "snr"]


@dataclass(frozen=True)
class Scoring:
    """A measure on unit vectors or on embeddings as they are.

    What is *measured* is a similarity, a squared distance or a variance ratio; *scores* are what the loss asked for.
    """

    measure: Measure
    unit: bool

    def operands(self, seen: View) -> tuple[Tensor, Tensor]:
        """Anchors and references as the measure takes them."""
        x = self._operand(seen.anchors)
        return x, x if seen.symmetric else self._operand(seen.references)

    def _operand(self, x: Tensor) -> Tensor:
        if self.measure == "snr":
            return centred_unit(x) if self.unit else centred(x)
        return normalize(x) if self.unit else x

    def matrix(self, x: Tensor, y: Tensor, relation: Relation) -> Tensor:
        """Measured for all pairs, (B, R), from one product; pairs of the relation that nearly coincide from
        differences, where a distance is measured."""
        if self._is_distance:
            measure = sphere_squared if self.unit else squared_euclidean
            return measure(x, y, counted=relation.includes)
        return centred_snr(x, y) if self.measure == "snr" else dot(x, y)

    def sides(self, x: Tensor, y: Tensor, tuples: Triplets | Quadruplets) -> Tensor:
        """Measured for (a, p), (a, n) and, of quadruplets, (n, l): (2 or 3, T), from differences, not from products."""
        found = [self._pairs(x, y, tuples.anchor, tuples.positive), self._pairs(x, y, tuples.anchor, tuples.negative)]
        if isinstance(tuples, Quadruplets):
            found.append(self._pairs(y, y, tuples.negative, tuples.fourth))
        return torch.stack(found)

    def _pairs(self, x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Measured for chosen pairs, row i of x with row j of y."""
        if not (self._is_distance or self.measure == "snr"):
            return gathered_dot(x, y, i, j)
        squared = gathered_squared_euclidean(x, y, i, j)
        return squared * inverse_signal(torch.linalg.vecdot(x, x))[i] if self.measure == "snr" else squared

    def scores(self, measured: Tensor) -> Tensor:
        return root(measured) if self.measure == "euclidean" else measured

    def of_similarity(self, similarity: float) -> float:
        """Return the score of a pair of unit vectors with this cosine."""
        if not self._is_distance:
            return similarity
        return math.sqrt(2.0 - 2.0 * similarity) if self.measure == "euclidean" else 2.0 - 2.0 * similarity

    @property
    def by_similarity(self) -> float | None:
        """Derivative of what is measured by the similarity of a pair; None where a similarity does not determine it."""
        if self.measure == "snr" or (self._is_distance and not self.unit):
            return None
        return -2.0 if self._is_distance else 1.0  # on the unit sphere the squared distance is 2 - 2 s

    @property
    def _is_distance(self) -> bool:
        return self.measure in ("euclidean", "squared-euclidean")
