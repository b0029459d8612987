"""All positives, and for each of them one negative from the band just below a similarity threshold."""

from typing import Literal

import torch

from kinfold.miners.drawing import take_first
from kinfold.miners.miner import Miner
from kinfold.miners.semihard_band import check_margin, semihard_band
from kinfold.pairs import Relation, View


class SemihardPairs(Miner):
    """Keep all positives; for each of them draw one negative with threshold - margin < s < threshold.

    The semi-hard selection that Qi et al. (ECCV 2020) compare their robust losses with. The threshold stands in for the
    similarity of the positive. The paper says only that the selection takes about 2,560 pairs of a batch of 640 with
    five items per class; that this is all 1,280 positive pairs and one negative for each is our reading.

    The negatives of an anchor are distinct and drawn uniformly. Where the band holds fewer than the anchor has
    positives, the rest are drawn from its other negatives (`fallback="uniform"`, as `semihard` does) or left out
    (`"drop"`).

    Args:
        threshold: Upper end of the band, a cosine.
        margin: Width of the band, positive.
        fallback: What to do where the band holds too few negatives: `"uniform"` or `"drop"`.
        generator: Source of random numbers; by default one of its own, seeded with 0.
    """

    def __init__(
        self,
        threshold: float = 0.5,
        margin: float = 0.2,
        fallback: Literal["uniform", "drop"] = "uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator)
        if fallback not in ("uniform", "drop"):
            raise ValueError(f"fallback must be 'uniform' or 'drop', got {fallback!r}")
        self.threshold = threshold
        self.margin = check_margin(margin)
        self.fallback = fallback

    def mine(self, seen: View) -> Relation:
        positives, negatives = seen.relation.positives, seen.relation.negatives
        band = semihard_band(seen, self.threshold, self.margin)
        # a random order of each row's negatives, those of the band before all others
        order = torch.rand(band.shape, generator=self.generator, device=self.generator.device).to(band.device)
        order = order + (~band).float() if self.fallback == "uniform" else order.masked_fill(~band, torch.inf)
        order = order.masked_fill(~negatives, torch.inf)
        return Relation(positives, take_first(order, positives.sum(dim=1)))
