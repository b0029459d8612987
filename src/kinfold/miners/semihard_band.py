"""All positives, and every negative in the band just below a similarity threshold."""

from torch import Tensor

from kinfold.miners.miner import Miner, similarities
from kinfold.pairs import Relation, View


class SemihardBand(Miner):
    """Keep all positives, and all negatives with threshold - margin < s < threshold.

    The threshold stands in for the similarity of the positive. `semihard-pairs` draws as many negatives from the same
    band as there are positives; this miner keeps the whole band, tens of times as many in a large batch.

    Args:
        threshold: Upper end of the band, a cosine.
        margin: Width of the band, positive.
    """

    def __init__(self, threshold: float = 0.5, margin: float = 0.2) -> None:
        super().__init__()
        self.threshold = threshold
        self.margin = check_margin(margin)

    def mine(self, seen: View) -> Relation:
        band = semihard_band(seen, self.threshold, self.margin)
        return Relation(seen.relation.positives, band)


def semihard_band(pairs: View, threshold: float, margin: float) -> Tensor:
    """Mark the negatives with threshold - margin < s < threshold, (B, R)."""
    similarity = similarities(pairs)
    return pairs.relation.negatives & (similarity > threshold - margin) & (similarity < threshold)


def check_margin(margin: float) -> float:
    """Return the width of a band of negatives, refusing one that is not positive."""
    if not margin > 0:
        raise ValueError(f"margin must be positive, got {margin}: the band of negatives would be empty")
    return margin
