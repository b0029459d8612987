"""All positives, and for each of them one negative by distance-weighted sampling (Wu et al., ICCV 2017)."""

import torch

from kinfold.miners.distance_weighted import negative_weights
from kinfold.miners.drawing import mark_smallest
from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Relation


class DistanceWeightedPairsMiner(Miner):
    """Select all positives, and as many distinct negatives of each anchor, drawn by distance weighting.

    Args:
        lower_cutoff: Smaller distances are treated as this distance.
        upper_cutoff: Negatives at larger distances are not drawn, unless an anchor has no others. None has no limit.
        generator: Source of random numbers; by default a new one with seed 0.
    """

    def __init__(
        self,
        lower_cutoff: float = 0.5,
        upper_cutoff: float | None = 1.4,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator)
        self.lower_cutoff = lower_cutoff
        self.upper_cutoff = upper_cutoff

    def mine(self, batch: PairBatch) -> Relation:
        positives, negatives = batch.relation.positives, batch.relation.negatives
        if positives.numel() == 0:
            return batch.relation
        dim = batch.anchors.shape[1]
        weights = negative_weights(
            self.compute_similarities(batch), negatives, dim, self.lower_cutoff, self.upper_cutoff
        )
        # the order of arrival in a race of exponential clocks is a weighted draw without replacement
        clocks = torch.empty(weights.shape, dtype=weights.dtype, device=self.generator.device)
        arrival = clocks.exponential_(generator=self.generator).to(weights.device) / weights
        # an entry of weight zero never arrives
        return Relation(positives, mark_smallest(arrival, positives.sum(dim=1)) & negatives)
