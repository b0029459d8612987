"""Batch hard: the farthest positive and the nearest negative of every anchor (Hermans et al., 2017)."""

import torch

from kinfold.miners.miner import Miner, sphere_distances
from kinfold.pairs import Triplets, View
from kinfold.pairs.masks import lowered


class Hard(Miner):
    """The hardest triplet of each anchor. Draws nothing, unless `switch` is set."""

    def __init__(self, switch: float = 0.0, generator: torch.Generator | None = None) -> None:
        super().__init__(generator, switch)

    def mine(self, seen: View) -> Triplets:
        relation = seen.relation
        if relation.positives.shape[1] == 0:
            valid = relation.has_both()
            index = torch.zeros_like(valid, dtype=torch.int64)
            return self.triplets(seen, index, index, valid)
        distance = sphere_distances(seen)
        positive = lowered(distance, relation.positives).argmax(dim=1)
        negative = lowered(-distance, relation.negatives).argmax(dim=1)
        return self.triplets(seen, positive, negative, relation.contains(positive, negative))
