"""What a loss is usually trained with, where a recipe or the estimator leaves it open with "auto".

`python -m benchmarks.every_loss FEATURES` shows what each loss gains over its start with these.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from kinfold import registry

# The contrastive loss pulls every positive pair and pushes only the negatives within its margin. From a start that
# keeps classes apart already there are hardly any of those among all pairs, and the space collapses; distance-weighted
# negatives hold against it. The margin loss was published with them. The lifted losses, hap2s, nt-xent and supcon
# weigh easy pairs of an anchor too much to improve on a good start, and need a choice of the hard ones. No other loss
# needs a miner.
USUAL_MINERS = {
    "margin": "distance-weighted",
    "contrastive": "distance-weighted",
    "lifted": "multi-similarity",
    "generalized-lifted": "multi-similarity",
    "hap2s": "multi-similarity",
    "nt-xent": "multi-similarity",
    "supcon": "multi-similarity",
}
PROXY_FACTOR = 100.0  # rate of class vectors in rates of the head: published settings are 50 to 500
# Of a head on standardized features that starts from their principal components.
RATE = 5e-4
# These learn from draws, or from a single pair of a batch: at RATE the noise takes more than they learn.
SLOW_RATES = {"quadruplet": 1e-4, "dro-max": 2e-5}
# Of embeddings at the start, for losses on raw vectors. At length 1 their exponentials weigh all pairs alike.
RAW_LENGTH = 5.0


def default_miner(loss: str, options: Mapping[str, Any] | None = None) -> str | None:
    """Name the miner that "auto" stands for with a loss and its options; None where it learns from all pairs.

    >>> usual_miner("margin"), usual_miner("triplet")
    ('distance-weighted', None)
    """
    if (options or {}).get("variant") == "oh-song":
        return None  # it wants the negatives of both ends of a pair, which a miner chooses for each end alone
    return USUAL_MINERS.get(loss)


def default_learning_rate(loss: str) -> float:
    """Give the learning rate that "auto" stands for with a loss, for a head on standardized features.

    >>> usual_rate("margin"), usual_rate("quadruplet")
    (0.0005, 0.0001)
    """
    return SLOW_RATES.get(loss, RATE)


def default_embedding_length(loss: str) -> float:
    """Give the root mean square length of embeddings that "auto" stands for, at a start from principal components.

    >>> usual_length("margin"), usual_length("n-pair")
    (1.0, 5.0)
    """
    return RAW_LENGTH if compares_raw_vectors(loss) else 1.0


def compares_raw_vectors(loss: str) -> bool:
    """Whether a loss compares embeddings with each other as they are, not as unit vectors.

    >>> [loss for loss in registry.names("losses") if compares_raw_vectors(loss)]
    ['generalized-lifted', 'n-pair', 'angular']
    """
    made = registry.resolve("losses", loss)
    by_class = "num_classes" in inspect.signature(made).parameters  # proxies are compared by direction
    return not getattr(made, "normalize", True) and not by_class
