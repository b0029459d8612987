"""Soft-hard mining: uniform draws among hard positives and hard negatives (Roth et al., ICML 2020)."""

import torch

from kinfold.miners.drawing import draw_uniform, fall_back
from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Triplets
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_out


class SofthardMiner(Miner):
    """Draw positives with d(a,p) > min_n d(a,n) and negatives with d(a,n) < max_p d(a,p), each uniformly.

    If there is no such item, the draw is uniform over all positives or all negatives. Marked "(H)" in the tables of
    Roth et al. (2020).

    Args:
        switch: Probability of replacing a triplet by (a, a, n) with n of the class of a, see `Miner`.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
        generator: Source of random numbers; by default a new one with seed 0.
    """

    def __init__(
        self, switch: float = 0.0, distance: Distance | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(generator, switch, distance)

    def mine(self, batch: PairBatch) -> Triplets:
        positives, negatives = batch.relation.positives, batch.relation.negatives
        if positives.shape[1]:
            distance = self.compute_distances(batch)
            nearest = -mask_out(-distance, negatives).amax(dim=1, keepdim=True)
            farthest = mask_out(distance, positives).amax(dim=1, keepdim=True)
            positives = fall_back(positives & (distance > nearest), positives)
            negatives = fall_back(negatives & (distance < farthest), negatives)
        positive, has_positive = draw_uniform(positives, self.generator)
        negative, has_negative = draw_uniform(negatives, self.generator)
        return self.make_triplets(batch, positive, negative, has_positive & has_negative)
