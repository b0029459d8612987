"""Miners select the pairs or triplets that a loss uses: a narrower relation, or one triplet per anchor.

Examples:
    >>> import torch, kinfold
    >>> miner = kinfold.miners.create("hard")
    >>> miner(torch.eye(4), torch.tensor([0, 0, 1, 1])).negative
    tensor([2, 2, 0, 0])
"""

from typing import Any

from kinfold import registry
from kinfold.miners.all_pairs import AllPairsMiner
from kinfold.miners.all_triplets import AllTripletsMiner
from kinfold.miners.distance_weighted import DistanceWeightedMiner
from kinfold.miners.distance_weighted_pairs import DistanceWeightedPairsMiner
from kinfold.miners.drml_hard import DRMLHardMiner
from kinfold.miners.easy_hard import EasyHardMiner
from kinfold.miners.hard import HardMiner
from kinfold.miners.informative_pairs import MultiSimilarityMiner
from kinfold.miners.miner import Miner
from kinfold.miners.pair_margin import PairMarginMiner
from kinfold.miners.random_triplets import RandomMiner
from kinfold.miners.sampled_triplets import SampledTripletsMiner
from kinfold.miners.semihard import SemihardMiner
from kinfold.miners.semihard_band import SemihardBandMiner
from kinfold.miners.semihard_pairs import SemihardPairsMiner
from kinfold.miners.softhard import SofthardMiner

__all__ = [
    "AllPairsMiner",
    "AllTripletsMiner",
    "DRMLHardMiner",
    "DistanceWeightedMiner",
    "DistanceWeightedPairsMiner",
    "EasyHardMiner",
    "HardMiner",
    "Miner",
    "MultiSimilarityMiner",
    "PairMarginMiner",
    "RandomMiner",
    "SampledTripletsMiner",
    "SemihardBandMiner",
    "SemihardMiner",
    "SemihardPairsMiner",
    "SofthardMiner",
    "create",
]


def create(name: str, **options: Any) -> Miner:
    """Create a miner by its registered name.

    Args:
        name: A name of `kinfold.list("miners")`.
        **options: Constructor arguments of the miner.

    Raises:
        ValueError: The name or an option is unknown; the message suggests the nearest one.

    Examples:
        >>> create("semihard", margin=0.1).margin
        0.1
    """
    miner = registry.create("miners", name, **options)
    assert isinstance(miner, Miner)
    return miner
