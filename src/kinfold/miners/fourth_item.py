"""A fourth item for a triplet, of a class that is neither the anchor's nor the negative's."""

import torch

from kinfold.miners.drawing import draw_uniform
from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Quadruplets, Relation, Triplets


class FourthItemMiner(Miner):
    """Draw uniformly among the items that are negative to the anchor and to the triplet's negative."""

    def mine(self, batch: PairBatch) -> Relation | Triplets:
        raise ValueError("a fourth item is added to existing triplets: use extend(triplets, batch)")

    @torch.no_grad()
    def extend(self, triplets: Triplets, batch: PairBatch) -> Quadruplets:
        """Add a fourth item to each triplet; `has_fourth` is False where no such item exists."""
        candidates = batch.relation.negatives.index_select(0, triplets.anchor)
        candidates &= self._find_negatives(batch).index_select(0, triplets.negative)
        fourth, exists = draw_uniform(candidates, self.generator)
        return Quadruplets(
            triplets.anchor, triplets.positive, triplets.negative, fourth, triplets.valid, exists & triplets.valid
        )

    def _find_negatives(self, batch: PairBatch) -> torch.Tensor:
        """Boolean (R, R), True where two references are of different classes."""
        if batch.symmetric:
            return batch.relation.negatives
        if batch.ref_labels is None:
            raise ValueError("quadruplets in a reference set need ref_labels: relation= has no pairs of two references")
        return Relation.from_labels(batch.ref_labels).negatives
