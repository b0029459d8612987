"""Every pair of the relation: no mining."""

from kinfold.miners.miner import Miner
from kinfold.pairs import Relation, View


class All(Miner):
    """The whole relation, as a baseline and as the neutral choice where a miner is asked for."""

    by_rows = False

    def __init__(self) -> None:
        super().__init__()

    def mine(self, seen: View) -> Relation:
        return seen.relation
