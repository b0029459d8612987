"""A fourth item for a triplet, of a class that is neither the anchor's nor the negative's."""

import torch

from kinfold.miners.drawing import choose
from kinfold.miners.miner import Miner
from kinfold.pairs import Quadruplets, Relation, Triplets, View


class Fourth(Miner):
    """Uniform among the items that are other to the anchor and to the negative; none where there are no such items."""

    def mine(self, seen: View) -> Relation | Triplets:
        raise ValueError("a fourth item is added to triplets: use extend(triplets, view)")

    @torch.no_grad()
    def extend(self, triplets: Triplets, seen: View) -> Quadruplets:
        """The triplets with their fourth items; `has_fourth` is False where there is none."""
        others = self._others_among(seen)
        strangers = seen.relation.negatives.index_select(0, triplets.anchor)
        strangers &= others.index_select(0, triplets.negative)
        fourth, found = choose(strangers, self.generator)
        return Quadruplets(
            triplets.anchor, triplets.positive, triplets.negative, fourth, triplets.valid, found & triplets.valid
        )

    def _others_among(self, seen: View) -> torch.Tensor:
        """(R, R) True where two references are of different kinds."""
        if seen.symmetric:
            return seen.relation.negatives
        if seen.ref_labels is None:
            raise ValueError("quadruplets in a reference set need ref_labels: a relation does not say who is kin in it")
        return Relation.from_labels(seen.ref_labels).negatives
