"""The distances that losses, miners and evaluations can be given: one small set of names.

| name | embeddings | similarity s | distance d |
|---|---|---|---|
| cosine | of length one | cosine | Euclidean distance of the unit vectors |
| dot | as they are | dot product | none; miners order by minus the dot product |
| euclidean | as they are | -d | Euclidean distance |
| snr | of length one, centered | -d | Var(x - y) / Var(x), not symmetric |
| hyperbolic | in the Poincare ball | -d | see `Hyperbolic` |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from torch import Tensor

from kinfold.pairs.hyperbolic import Hyperbolic, measure_excess
from kinfold.pairs.measures import (
    center,
    dot,
    euclidean,
    normalize,
    snr_of_centered,
    sphere_distance,
)

DistanceName: TypeAlias = Literal["cosine", "dot", "euclidean", "snr", "hyperbolic"]
Distance: TypeAlias = DistanceName | Hyperbolic | Mapping[str, Any]
"""A name, or `Hyperbolic` with its numbers; in a recipe { name = "hyperbolic", curvature = 0.2 }."""

DISTANCES: tuple[str, ...] = get_args(DistanceName)


@dataclass(frozen=True)
class PairDistance:
    """One of the distances, ready to measure embeddings.

    Attributes:
        name: One of `DISTANCES`.
        hyperbolic: Its numbers, for "hyperbolic".
    """

    name: DistanceName
    hyperbolic: Hyperbolic | None = None

    def make_operand(self, x: Tensor) -> Tensor:
        """Return the rows that `measure_distances` and `measure_similarities` take."""
        if self.name == "cosine":
            return normalize(x)
        if self.name == "snr":
            return center(normalize(x))
        return x if self.hyperbolic is None else self.hyperbolic.lift(x)

    def measure_distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances (B, R) of rows of `make_operand`, smaller ones for nearer pairs."""
        if self.hyperbolic is not None:
            return self.hyperbolic.to_distance(measure_excess(x, y))
        if self.name == "snr":
            return snr_of_centered(x, y)
        if self.name == "euclidean":
            return euclidean(x, y)
        return sphere_distance(dot(x, y)) if self.name == "cosine" else -dot(x, y)

    def measure_similarities(self, x: Tensor, y: Tensor) -> Tensor:
        """Similarities (B, R) of rows of `make_operand`."""
        return dot(x, y) if self.name in ("cosine", "dot") else -self.measure_distances(x, y)


COSINE = PairDistance("cosine")


def read_distance(distance: Distance) -> PairDistance:
    """Read the option `distance` of a loss, a miner or an evaluation.

    Raises:
        ValueError: There is no such distance.

    Examples:
        >>> read_distance("euclidean").name
        'euclidean'
        >>> read_distance({"name": "hyperbolic", "curvature": 0.5}).hyperbolic
        Hyperbolic(curvature=0.5, radius=2.3)
    """
    if isinstance(distance, Hyperbolic):
        return PairDistance("hyperbolic", distance)
    table: Mapping[str, Any] = distance if isinstance(distance, Mapping) else {"name": distance}
    name, numbers = table.get("name"), {key: value for key, value in table.items() if key != "name"}
    if name not in DISTANCES:
        raise ValueError(f"distance must be one of {', '.join(DISTANCES)}, or a kinfold.pairs.Hyperbolic; got {name!r}")
    if name != "hyperbolic":
        if numbers:
            raise ValueError(f"distance {name!r} takes no {', '.join(numbers)}; only hyperbolic has numbers")
        return PairDistance(cast(DistanceName, name))
    unknown = numbers.keys() - {"curvature", "radius"}
    if unknown:
        raise ValueError(f"distance 'hyperbolic' takes curvature and radius, not {', '.join(sorted(unknown))}")
    return PairDistance("hyperbolic", Hyperbolic(**numbers))
