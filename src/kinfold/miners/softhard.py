"""Uniform among the hard ones: positives beyond the nearest negative, negatives within the farthest positive."""

import torch

from kinfold.miners.drawing import choose, or_all
from kinfold.miners.miner import Miner, sphere_distances
from kinfold.pairs import Triplets, View
from kinfold.pairs.masks import lowered


class Softhard(Miner):
    """Positives with d(a,p) > min_n d(a,n), negatives with d(a,n) < max_p d(a,p), each drawn uniformly; where such a
    set is empty, uniform over all positives or all negatives (Roth et al., 2020; "(H)" in their tables)."""

    def __init__(self, switch: float = 0.0, generator: torch.Generator | None = None) -> None:
        super().__init__(generator, switch)

    def mine(self, seen: View) -> Triplets:
        positives, negatives = seen.relation.positives, seen.relation.negatives
        if positives.shape[1]:
            distance = sphere_distances(seen)
            nearest = -lowered(-distance, negatives).amax(dim=1, keepdim=True)
            farthest = lowered(distance, positives).amax(dim=1, keepdim=True)
            positives = or_all(positives & (distance > nearest), positives)
            negatives = or_all(negatives & (distance < farthest), negatives)
        positive, has_positive = choose(positives, self.generator)
        negative, has_negative = choose(negatives, self.generator)
        return self.triplets(seen, positive, negative, has_positive & has_negative)
