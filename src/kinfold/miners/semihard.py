"""Negatives a little farther than the positive (Schroff et al., CVPR 2015)."""

from typing import Literal

import torch

from kinfold.miners.drawing import choose, or_all
from kinfold.miners.miner import Miner, sphere_distances
from kinfold.pairs import Triplets, View


class Semihard(Miner):
    """A uniform positive p, and a uniform negative with d(a,p) < d(a,n) < d(a,p) + margin.

    Where no negative lies in the band: one of all negatives (`fallback="uniform"`) or no triplet (`"drop"`).
    `squared=True` measures the band in squared distances, as the triplet loss does by default.
    """

    def __init__(
        self,
        margin: float = 0.2,
        squared: bool = False,
        fallback: Literal["uniform", "drop"] = "uniform",
        switch: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator, switch)
        if fallback not in ("uniform", "drop"):
            raise ValueError(f"fallback must be 'uniform' or 'drop', got {fallback!r}")
        if margin <= 0:
            raise ValueError(f"margin must be positive, got {margin}: the band of negatives would be empty")
        self.margin = margin
        self.squared = squared
        self.fallback = fallback

    def mine(self, seen: View) -> Triplets:
        distance = sphere_distances(seen)
        if self.squared:
            distance = distance.square()
        positive, has_positive = choose(seen.relation.positives, self.generator)
        if distance.shape[1] == 0:
            return self.triplets(seen, positive, positive, has_positive)
        reach = distance.gather(1, positive[:, None])
        negatives = seen.relation.negatives
        band = negatives & (distance > reach) & (distance < reach + self.margin)
        if self.fallback == "uniform":
            band = or_all(band, negatives)
        negative, has_negative = choose(band, self.generator)
        return self.triplets(seen, positive, negative, has_positive & has_negative)
