"""All positives, and every negative in the band just below a similarity threshold."""

from torch import Tensor

from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Relation
from kinfold.pairs.distances import Distance


class SemihardBandMiner(Miner):
    """Select all positives, and all negatives with threshold - margin < s < threshold.

    The threshold replaces the similarity of the positive. `semihard-pairs` draws as many negatives from the same band
    as there are positives; this miner selects the whole band, tens of times as many in a large batch.

    Args:
        threshold: Upper end of the band, a cosine.
        margin: Width of the band, positive.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
    """

    def __init__(self, threshold: float = 0.5, margin: float = 0.2, distance: Distance | None = None) -> None:
        super().__init__(distance=distance)
        check_band(margin)
        self.threshold = threshold
        self.margin = margin

    def mine(self, batch: PairBatch) -> Relation:
        return Relation(
            batch.relation.positives,
            mark_semihard(self.compute_similarities(batch), batch.relation.negatives, self.threshold, self.margin),
        )


def mark_semihard(similarity: Tensor, negatives: Tensor, threshold: float, margin: float) -> Tensor:
    """Mark the negatives with threshold - margin < s < threshold, (B, R)."""
    return negatives & (similarity > threshold - margin) & (similarity < threshold)


def check_band(margin: float, fallback: str = "uniform") -> None:
    """Raise ValueError for a band of negatives that is empty, or an unknown fallback."""
    if fallback not in ("uniform", "drop"):
        raise ValueError(f"fallback must be 'uniform' or 'drop', got {fallback!r}")
    if not margin > 0:
        raise ValueError(f"margin must be positive, got {margin}: the band of negatives would be empty")
