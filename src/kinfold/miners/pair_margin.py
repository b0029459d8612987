"""Pair margin mining: the pairs on the wrong side of a fixed distance."""

from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Relation
from kinfold.pairs.distances import Distance


class PairMarginMiner(Miner):
    """Keep positives with d > positive_margin and negatives with d < negative_margin. Nothing is random.

    Args:
        positive_margin: Distance up to which a positive is left out.
        negative_margin: Distance from which a negative is left out.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
    """

    def __init__(
        self, positive_margin: float = 0.2, negative_margin: float = 0.8, distance: Distance | None = None
    ) -> None:
        super().__init__(distance=distance)
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin

    def mine(self, batch: PairBatch) -> Relation:
        distance, relation = self.compute_distances(batch), batch.relation
        return Relation(
            relation.positives & (distance > self.positive_margin),
            relation.negatives & (distance < self.negative_margin),
        )
