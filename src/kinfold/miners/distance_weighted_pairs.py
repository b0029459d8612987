"""All positives, and for each of them one negative drawn against the density of distances (Wu et al., ICCV 2017)."""

import torch

from kinfold.miners.distance_weighted import negative_weights
from kinfold.miners.drawing import take_first
from kinfold.miners.miner import Miner, similarities
from kinfold.pairs import Relation, View


class DistanceWeightedPairs(Miner):
    """As many distinct negatives as an anchor has positives, drawn one after the other by distance weighting."""

    def __init__(
        self,
        lower_cutoff: float = 0.5,
        upper_cutoff: float | None = 1.4,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator)
        self.lower_cutoff = lower_cutoff
        self.upper_cutoff = upper_cutoff

    def mine(self, seen: View) -> Relation:
        positives, negatives = seen.relation.positives, seen.relation.negatives
        if positives.numel() == 0:
            return seen.relation
        similarity = similarities(seen)
        weights = negative_weights(similarity, negatives, seen.anchors.shape[1], self.lower_cutoff, self.upper_cutoff)
        # the order of arrival in a race of exponential clocks is a weighted draw without replacement
        clocks = torch.empty(weights.shape, dtype=weights.dtype, device=self.generator.device)
        arrival = clocks.exponential_(generator=self.generator).to(weights.device) / weights
        # weight zero never arrives
        return Relation(positives, take_first(arrival, positives.sum(dim=1)) & negatives)
