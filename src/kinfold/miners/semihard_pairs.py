"""All positives, and for each of them one negative from the band just below a similarity threshold."""

from typing import Literal

import torch

from kinfold.miners.drawing import mark_smallest
from kinfold.miners.miner import Miner
from kinfold.miners.semihard_band import check_band, mark_semihard
from kinfold.pairs import PairBatch, Relation
from kinfold.pairs.distances import Distance


class SemihardPairsMiner(Miner):
    """Select all positives, and for each of them draw one negative with threshold - margin < s < threshold.

    The semi-hard selection that Qi et al. (ECCV 2020) compare their robust losses with. The threshold replaces the
    similarity of the positive. The paper says only that about 2,560 pairs are selected in a batch of 640 with five
    items per class. That these are all 1,280 positive pairs and one negative for each is our interpretation.

    The negatives of an anchor are distinct and drawn uniformly.

    Args:
        threshold: Upper end of the band, a cosine.
        margin: Width of the band, positive.
        fallback: What to do if the band has fewer negatives than the anchor has positives: "uniform" draws the rest
            from its other negatives, "drop" leaves them out.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
        generator: Source of random numbers; by default a new one with seed 0.
    """

    def __init__(
        self,
        threshold: float = 0.5,
        margin: float = 0.2,
        fallback: Literal["uniform", "drop"] = "uniform",
        distance: Distance | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator, distance=distance)
        check_band(margin, fallback)
        self.threshold = threshold
        self.margin = margin
        self.fallback = fallback

    def mine(self, batch: PairBatch) -> Relation:
        positives, negatives = batch.relation.positives, batch.relation.negatives
        band = mark_semihard(self.compute_similarities(batch), negatives, self.threshold, self.margin)
        # a random order of the negatives of each row, those in the band before all others
        order = torch.rand(band.shape, generator=self.generator, device=self.generator.device).to(band.device)
        order = order + (~band).float() if self.fallback == "uniform" else order.masked_fill(~band, torch.inf)
        order = order.masked_fill(~negatives, torch.inf)
        return Relation(positives, mark_smallest(order, positives.sum(dim=1)))
