"""Batch-hard mining: the farthest positive and the nearest negative of every anchor (Hermans et al., 2017)."""

import torch

from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Triplets
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_out


class HardMiner(Miner):
    """Select the hardest triplet of each anchor. Nothing is random, unless `switch` is set.

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
        relation = batch.relation
        if relation.positives.shape[1] == 0:
            valid = relation.has_both()
            index = torch.zeros_like(valid, dtype=torch.int64)
            return self.make_triplets(batch, index, index, valid)
        distance = self.compute_distances(batch)
        positive = mask_out(distance, relation.positives).argmax(dim=1)
        negative = mask_out(-distance, relation.negatives).argmax(dim=1)
        return self.make_triplets(batch, positive, negative, relation.contains_triplets(positive, negative))
