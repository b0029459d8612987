"""All positives, and negatives in the band just below a similarity threshold (semi-hard for a pair loss)."""

from kinfold.miners.miner import Miner, similarities
from kinfold.pairs import Relation, View


class SemihardPairs(Miner):
    """Negatives with threshold - margin < s < threshold; the threshold stands in for the similarity of kin.

    The comparison that Qi et al. (2020) draw for their margin loss with semi-hard mining.
    """

    def __init__(self, threshold: float = 0.5, margin: float = 0.2) -> None:
        super().__init__()
        if margin <= 0:
            raise ValueError(f"margin must be positive, got {margin}: the band of negatives would be empty")
        self.threshold = threshold
        self.margin = margin

    def mine(self, seen: View) -> Relation:
        similarity = similarities(seen)
        band = (similarity > self.threshold - self.margin) & (similarity < self.threshold)
        return Relation(seen.relation.positives, seen.relation.negatives & band)
