"""Semi-hard mining: negatives a little farther than the positive (Schroff et al., CVPR 2015)."""

from typing import Literal

import torch

from kinfold.miners.drawing import draw_uniform, fall_back
from kinfold.miners.miner import Miner
from kinfold.miners.semihard_band import check_band
from kinfold.pairs import PairBatch, Triplets
from kinfold.pairs.distances import Distance


class SemihardMiner(Miner):
    """Draw a uniform positive p, and a uniform negative with d(a,p) < d(a,n) < d(a,p) + margin.

    Args:
        margin: Width of the band of negatives, positive.
        squared: Whether the band is measured in squared distances, as in the default triplet loss.
        fallback: What to do if no negative is in the band: "uniform" draws from all negatives, "drop" yields no
            triplet.
        switch: Probability of replacing a triplet by (a, a, n) with n of the class of a, see `Miner`.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
        generator: Source of random numbers; by default a new one with seed 0.
    """

    def __init__(
        self,
        margin: float = 0.2,
        squared: bool = False,
        fallback: Literal["uniform", "drop"] = "uniform",
        switch: float = 0.0,
        distance: Distance | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator, switch, distance)
        check_band(margin, fallback)
        self.margin = margin
        self.squared = squared
        self.fallback = fallback

    def mine(self, batch: PairBatch) -> Triplets:
        distance = self.compute_distances(batch)
        if self.squared:
            distance = distance.square()
        positive, has_positive = draw_uniform(batch.relation.positives, self.generator)
        if distance.shape[1] == 0:
            return self.make_triplets(batch, positive, positive, has_positive)
        positive_distance = distance.gather(1, positive[:, None])
        negatives = batch.relation.negatives
        band = negatives & (distance > positive_distance) & (distance < positive_distance + self.margin)
        if self.fallback == "uniform":
            band = fall_back(band, negatives)
        negative, has_negative = draw_uniform(band, self.generator)
        return self.make_triplets(batch, positive, negative, has_positive & has_negative)
