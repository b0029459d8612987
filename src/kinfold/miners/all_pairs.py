"""All pairs of the relation: no selection."""

from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Relation


class AllPairsMiner(Miner):
    """Select every pair. A baseline, and the neutral choice where a miner is required."""

    supports_chunks = False

    def __init__(self) -> None:
        super().__init__()

    def mine(self, batch: PairBatch) -> Relation:
        return batch.relation
