"""Similarity and relation in, a value out; its derivative by a similarity is the weight of that pair."""

from typing import Any

from kinfold import registry
from kinfold.losses.binomial import Binomial, binomial
from kinfold.losses.contrastive import Contrastive, contrastive
from kinfold.losses.histogram import Histogram, histogram
from kinfold.losses.lifted import Lifted, lifted
from kinfold.losses.loss import Loss
from kinfold.losses.margin import Margin, margin
from kinfold.losses.mined import Mined
from kinfold.losses.multi_similarity import MultiSimilarity, multi_similarity
from kinfold.losses.n_pair import NPair, n_pair
from kinfold.losses.normalized_softmax import NormalizedSoftmax, cross_entropy
from kinfold.losses.parameter_groups import parameter_groups
from kinfold.losses.precision_at_k import PrecisionAtK, precision_at_k
from kinfold.losses.proxy_anchor import ProxyAnchor, proxy_anchor
from kinfold.losses.proxy_nca import ProxyNCA, proxy_nca
from kinfold.losses.similarity_margin import SimilarityMargin, similarity_margin
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.triplet import Triplet, all_triplets

__all__ = [
    "Binomial",
    "Contrastive",
    "Histogram",
    "Lifted",
    "Loss",
    "Margin",
    "Mined",
    "MultiSimilarity",
    "NPair",
    "NormalizedSoftmax",
    "PrecisionAtK",
    "ProxyAnchor",
    "ProxyNCA",
    "ScoredPairs",
    "SimilarityMargin",
    "Terms",
    "Triplet",
    "all_triplets",
    "binomial",
    "contrastive",
    "create",
    "cross_entropy",
    "histogram",
    "lifted",
    "margin",
    "multi_similarity",
    "n_pair",
    "parameter_groups",
    "precision_at_k",
    "proxy_anchor",
    "proxy_nca",
    "similarity_margin",
]


def create(name: str, **options: Any) -> Loss:
    """Make a loss by its registered name; `num_classes=` and `dim=` where it owns proxies.

    >>> create("multi-similarity", threshold=0.6).threshold
    0.6
    """
    loss = registry.create("losses", name, **options)
    assert isinstance(loss, Loss)
    return loss
