"""What "auto" stands for with a loss, in recipes and in the scikit-learn estimator.

`python -m benchmarks.every_loss FEATURES` shows what each loss gains over its start with these defaults.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from kinfold import registry

# The contrastive loss pulls all positive pairs together and pushes only the negatives within its margin. Where the
# start separates classes already, there are hardly any such negatives among all pairs, and the embedding collapses;
# distance-weighted negatives prevent it. The margin loss was published with them. The lifted losses, hap2s, nt-xent and
# supcon give easy pairs too much weight to improve a good start, and need hard ones. No other loss needs a miner.
DEFAULT_MINERS = {
    "margin": "distance-weighted",
    "contrastive": "distance-weighted",
    "lifted": "multi-similarity",
    "generalized-lifted": "multi-similarity",
    "hap2s": "multi-similarity",
    "nt-xent": "multi-similarity",
    "supcon": "multi-similarity",
}
PROXY_FACTOR = 100.0  # learning rate of proxies over that of the head; published settings are 50 to 500
# For a head on standardized features that starts from their principal components.
LEARNING_RATE = 5e-4
# These learn from draws, or from a single pair of a batch, and LEARNING_RATE is too noisy for them.
SLOW_LEARNING_RATES = {"quadruplet": 1e-4, "dro-max": 2e-5}
# Initial length of embeddings for losses on raw vectors. At length 1 their exponentials weight all pairs alike.
RAW_LENGTH = 5.0


def default_miner(loss: str, options: Mapping[str, Any] | None = None) -> str | None:
    """Return the miner that "auto" stands for; None where the loss learns from all pairs.

    Args:
        loss: A registered loss.
        options: Its options.

    Examples:
        >>> default_miner("margin"), default_miner("triplet")
        ('distance-weighted', None)
    """
    if (options or {}).get("variant") == "oh-song":
        return None  # it needs the negatives of both ends of a pair, and a miner selects for each end alone
    return DEFAULT_MINERS.get(loss)


def default_learning_rate(loss: str) -> float:
    """Return the learning rate that "auto" stands for, for a head on standardized features.

    Examples:
        >>> default_learning_rate("margin"), default_learning_rate("quadruplet")
        (0.0005, 0.0001)
    """
    return SLOW_LEARNING_RATES.get(loss, LEARNING_RATE)


def default_embedding_length(loss: str) -> float:
    """Return the root mean square length that embeddings get at a start from principal components.

    Examples:
        >>> default_embedding_length("margin"), default_embedding_length("n-pair")
        (1.0, 5.0)
    """
    return RAW_LENGTH if compares_raw_vectors(loss) else 1.0


def compares_raw_vectors(loss: str) -> bool:
    """Return whether a loss compares embeddings with each other without normalizing them.

    Examples:
        >>> [loss for loss in registry.names("losses") if compares_raw_vectors(loss)]
        ['generalized-lifted', 'n-pair', 'angular']
    """
    target = registry.resolve("losses", loss)
    has_proxies = "num_classes" in inspect.signature(target).parameters  # proxies are compared by cosine
    return not getattr(target, "normalize", True) and not has_proxies
