"""All triplets of a kind: hard, semi-hard, easy, those that violate a margin, or every one (Schroff et al., 2015)."""

from typing import Literal

import torch

from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Triplets
from kinfold.pairs.distances import Distance
from kinfold.registry import check_choice

DIFFICULTIES = ("violating", "hard", "semihard", "easy", "all")


class AllTripletsMiner(Miner):
    """List every triplet (a, p, n) of a kind, in any number. Nothing is random. Memory is that of the list.

    With the gap g = d(a, n) - d(a, p):

    "hard": g <= 0        "semihard": 0 < g <= margin        "violating": g <= margin, both of these
    "easy": g > margin    "all": every triplet

    Args:
        difficulty: Which triplets are listed.
        margin: Gap from which a triplet is easy.
        squared: Whether the gap is one of squared distances, as in the default triplet loss.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
    """

    def __init__(
        self,
        difficulty: Literal["violating", "hard", "semihard", "easy", "all"] = "violating",
        margin: float = 0.2,
        squared: bool = False,
        distance: Distance | None = None,
    ) -> None:
        super().__init__(distance=distance)
        check_choice("difficulty", difficulty, DIFFICULTIES)
        self.difficulty = difficulty
        self.margin = margin
        self.squared = squared

    def mine(self, batch: PairBatch) -> Triplets:
        distance = self.compute_distances(batch)
        if self.squared:
            distance = distance.square()
        anchor, positive = batch.relation.positives.nonzero(as_tuple=True)
        kept = batch.relation.negatives[anchor]  # a row for each positive pair
        if self.difficulty != "all":
            gap = distance[anchor] - distance[anchor, positive][:, None]
            low = 0.0 if self.difficulty == "semihard" else self.margin if self.difficulty == "easy" else -torch.inf
            high = 0.0 if self.difficulty == "hard" else torch.inf if self.difficulty == "easy" else self.margin
            kept = kept & (gap > low) & (gap <= high)
        pair, negative = kept.nonzero(as_tuple=True)
        valid = torch.ones_like(pair, dtype=torch.bool)
        return Triplets(anchor[pair] + batch.first_row, positive[pair], negative, valid)
