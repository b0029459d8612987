"""Uniform among the hard ones: positives beyond the nearest negative, negatives within the farthest positive."""

import torch

from kinfold.miners.drawing import choose
from kinfold.miners.miner import Miner, sphere_distances
from kinfold.pairs import Triplets, View


class Softhard(Miner):
    """Positives with d(a,p) > min_n d(a,n), negatives with d(a,n) < max_p d(a,p), each drawn uniformly; where such a
    set is empty, uniform over all positives or all negatives (Roth et al., 2020; "(H)" in their tables)."""

    def __init__(self, switch: float = 0.0, generator: torch.Generator | None = None) -> None:
        super().__init__(generator, switch)

    def mine(self, seen: View) -> Triplets:
        positives, negatives = seen.relation.positives, seen.relation.negatives
        if positives.shape[1]:
            distance = sphere_distances(seen)
            nearest = distance.masked_fill(~negatives, torch.inf).amin(dim=1, keepdim=True)
            farthest = distance.masked_fill(~positives, -torch.inf).amax(dim=1, keepdim=True)
            hard_positives, hard_negatives = positives & (distance > nearest), negatives & (distance < farthest)
            positives = torch.where(hard_positives.any(dim=1, keepdim=True), hard_positives, positives)
            negatives = torch.where(hard_negatives.any(dim=1, keepdim=True), hard_negatives, negatives)
        positive, has_positive = choose(positives, self.generator)
        negative, has_negative = choose(negatives, self.generator)
        return self.triplets(seen, positive, negative, has_positive & has_negative)
