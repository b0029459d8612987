"""Which pairs or triplets a loss should look at: a relation made narrower, or one triplet per anchor."""

from typing import Any

from kinfold import registry
from kinfold.miners.all import All
from kinfold.miners.distance_weighted import DistanceWeighted
from kinfold.miners.distance_weighted_pairs import DistanceWeightedPairs
from kinfold.miners.drml_hard import DRMLHard
from kinfold.miners.hard import Hard
from kinfold.miners.miner import Miner
from kinfold.miners.multi_similarity import MultiSimilarity
from kinfold.miners.random import Random
from kinfold.miners.semihard import Semihard
from kinfold.miners.semihard_band import SemihardBand
from kinfold.miners.semihard_pairs import SemihardPairs
from kinfold.miners.softhard import Softhard

__all__ = [
    "All",
    "DRMLHard",
    "DistanceWeighted",
    "DistanceWeightedPairs",
    "Hard",
    "Miner",
    "MultiSimilarity",
    "Random",
    "Semihard",
    "SemihardBand",
    "SemihardPairs",
    "Softhard",
    "create",
]


def create(name: str, **options: Any) -> Miner:
    """Make a miner by its registered name.

    >>> create("semihard", margin=0.1).margin
    0.1
    """
    miner = registry.create("miners", name, **options)
    assert isinstance(miner, Miner)
    return miner
