"""What "auto" stands for with a loss, in recipes and in the scikit-learn estimator.

`python -m benchmarks.every_loss` shows what each loss gains over its start with these defaults.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from kinfold import registry

# The contrastive loss pulls all positive pairs together and pushes only the negatives within its margin. Where the
# start separates classes already, there are hardly any such negatives among all pairs, and the embedding collapses;
# distance-weighted negatives prevent it. The margin loss was published with them. The lifted losses, hap2s, nt-xent and
# supcon give easy pairs too much weight to improve a good start, and need hard ones. So does soft-margin-triplet, whose
# paper takes the hardest triplet of each anchor. No other loss needs a miner.
DEFAULT_MINERS = {
    "margin": "distance-weighted",
    "contrastive": "distance-weighted",
    "lifted": "multi-similarity",
    "generalized-lifted": "multi-similarity",
    "hap2s": "multi-similarity",
    "nt-xent": "multi-similarity",
    "supcon": "multi-similarity",
    "soft-margin-triplet": "hard",
}
CPU_SIZE = 128  # pixels; a step takes about a third of the time of 224
PROXY_FACTOR = 100.0  # learning rate of proxies over that of the head; published settings are 50 to 500
# Of backbone and head with Adam, by what is trained: a head on standardized features that starts from their principal
# components, conv4, and any other backbone that comes with weights, under a head with random weights or one that is
# computed from the features. On photos the latter starts 3 points of validation map@r higher, and 1e-4 would spoil it:
# n-pair loses a point in 60 steps at 1e-4 and gains one at 1e-5.
LEARNING_RATES = {
    "features": (5e-4, 5e-4),
    "conv4": (4e-3, 4e-3),
    "pretrained": (1e-5, 1e-4),
    "pretrained-components": (1e-5, 1e-5),
}
# What these rates are divided by. quadruplet and dro-max learn from draws, or from a single pair of a batch, and need
# smaller steps; the rates of a pretrained backbone are small enough. A network with random weights must not follow
# proxies before they point anywhere: on glyphs softmax gained 47.5 points of validation map@r at 1e-3, 43.4 at 4e-3.
RATE_DIVISORS = {
    "features": {"quadruplet": 5.0, "dro-max": 25.0},
    "conv4": {"quadruplet": 5.0, "dro-max": 25.0, "proxies": 4.0},
    "pretrained": {},
    "pretrained-components": {"dro-max": 10.0},  # at 1e-5 it falls below its start and stays there
}
# Initial length of embeddings for losses on raw vectors. At length 1 their exponentials weight all pairs alike.
RAW_LENGTH = 5.0
# The same for losses with class vectors that use lengths: magface needs them between 10 and 110.
USED_LENGTH = 30.0


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


def network_kind(model: Mapping[str, Any]) -> str | None:
    """Return the key of LEARNING_RATES for the [model] table of a recipe; None where no rate is known.

    Examples:
        >>> network_kind({"standardize": True}), network_kind({"backbone": "resnet50", "weights": "imagenet"})
        ('features', 'pretrained')
    """
    if model.get("standardize"):
        return "features"
    if model.get("backbone") == "conv4":
        return "conv4"
    if model.get("weights") is None:
        return None
    return "pretrained" if model.get("init", "auto") in ("auto", "random") else "pretrained-components"


def default_learning_rates(loss: str, kind: str) -> tuple[float, float]:
    """Return the learning rates of backbone and head that "auto" stands for.

    Args:
        loss: A registered loss.
        kind: A key of LEARNING_RATES.

    Examples:
        >>> default_learning_rates("margin", "features"), default_learning_rates("dro-max", "conv4")
        ((0.0005, 0.0005), (0.00016, 0.00016))
    """
    divisor = RATE_DIVISORS[kind].get("proxies" if has_proxies(loss) else loss, 1.0)
    backbone, head = LEARNING_RATES[kind]
    return backbone / divisor, head / divisor


def default_image_size(device: Any) -> int | None:
    """Return the size of images that "auto" stands for: CPU_SIZE on a CPU, None (that of the pipeline) elsewhere.

    Args:
        device: training.device of a recipe.

    Examples:
        >>> default_image_size("cpu"), default_image_size("cuda")
        (128, None)
    """
    is_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    return CPU_SIZE if is_cpu else None


def default_embedding_length(loss: str) -> float:
    """Return the root mean square length that embeddings get at a start from principal components.

    Examples:
        >>> [default_embedding_length(loss) for loss in ("margin", "n-pair", "magface")]
        [1.0, 5.0, 30.0]
    """
    if getattr(registry.resolve("losses", loss), "uses_lengths", False):
        return USED_LENGTH
    return RAW_LENGTH if compares_raw_vectors(loss) else 1.0


def has_proxies(loss: str) -> bool:
    """Return whether a loss learns vectors of classes and compares embeddings with them.

    Examples:
        >>> has_proxies("proxy-anchor"), has_proxies("margin")
        (True, False)
    """
    classes = inspect.signature(registry.resolve("losses", loss)).parameters.get("num_classes")
    return classes is not None and classes.default is inspect.Parameter.empty


def compares_raw_vectors(loss: str) -> bool:
    """Return whether a loss compares embeddings with each other without normalizing them.

    Examples:
        >>> [loss for loss in registry.names("losses") if compares_raw_vectors(loss)]
        ['generalized-lifted', 'n-pair', 'angular', 'vicreg', 'log-ratio']
    """
    target = registry.resolve("losses", loss)
    return not getattr(target, "normalize", True) and not has_proxies(loss)  # proxies are compared by cosine
