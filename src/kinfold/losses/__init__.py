"""Similarity and relation in, a value out; its derivative by a similarity is the weight of that pair."""

from typing import Any

from kinfold import registry
from kinfold.losses.angular import Angular, angular
from kinfold.losses.arcface import ArcFace
from kinfold.losses.authoring import check_made
from kinfold.losses.binomial import Binomial, binomial
from kinfold.losses.circle import Circle, circle
from kinfold.losses.contrastive import Contrastive, contrastive
from kinfold.losses.cosface import CosFace
from kinfold.losses.cross_entropy import cross_entropy
from kinfold.losses.fastap import FastAP, fastap
from kinfold.losses.generalized_lifted import GeneralizedLifted, generalized_lifted
from kinfold.losses.hap2s import HAP2S, hap2s
from kinfold.losses.histogram import Histogram, histogram
from kinfold.losses.lifted import Lifted, lifted, lifted_oh_song
from kinfold.losses.loss import Loss
from kinfold.losses.margin import Margin, margin
from kinfold.losses.mined import Mined
from kinfold.losses.multi_similarity import MultiSimilarity, multi_similarity
from kinfold.losses.n_pair import NPair, n_pair
from kinfold.losses.normalized_softmax import NormalizedSoftmax
from kinfold.losses.nt_xent import NTXent, nt_xent
from kinfold.losses.parameter_groups import parameter_groups
from kinfold.losses.precision_at_k import PrecisionAtK, precision_at_k
from kinfold.losses.proxy_anchor import ProxyAnchor, proxy_anchor
from kinfold.losses.proxy_nca import ProxyNCA, proxy_nca
from kinfold.losses.quadruplet import Quadruplet
from kinfold.losses.ranked_list import RankedList, ranked_list
from kinfold.losses.similarity_contrastive import SimilarityContrastive, similarity_contrastive
from kinfold.losses.similarity_margin import SimilarityMargin, similarity_margin
from kinfold.losses.smooth_ap import SmoothAP, smooth_ap
from kinfold.losses.snr import SNR
from kinfold.losses.soft_triple import SoftTriple
from kinfold.losses.softmax import Softmax
from kinfold.losses.supcon import SupCon, supcon
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.triplet import Triplet, all_triplets

__all__ = [
    "HAP2S",
    "SNR",
    "Angular",
    "ArcFace",
    "Binomial",
    "Circle",
    "Contrastive",
    "CosFace",
    "FastAP",
    "GeneralizedLifted",
    "Histogram",
    "Lifted",
    "Loss",
    "Margin",
    "Mined",
    "MultiSimilarity",
    "NPair",
    "NTXent",
    "NormalizedSoftmax",
    "PrecisionAtK",
    "ProxyAnchor",
    "ProxyNCA",
    "Quadruplet",
    "RankedList",
    "ScoredPairs",
    "SimilarityContrastive",
    "SimilarityMargin",
    "SmoothAP",
    "SoftTriple",
    "Softmax",
    "SupCon",
    "Terms",
    "Triplet",
    "all_triplets",
    "angular",
    "binomial",
    "circle",
    "contrastive",
    "create",
    "cross_entropy",
    "fastap",
    "generalized_lifted",
    "hap2s",
    "histogram",
    "lifted",
    "lifted_oh_song",
    "margin",
    "multi_similarity",
    "n_pair",
    "nt_xent",
    "parameter_groups",
    "precision_at_k",
    "proxy_anchor",
    "proxy_nca",
    "ranked_list",
    "similarity_contrastive",
    "similarity_margin",
    "smooth_ap",
    "supcon",
]


def create(name: str, **options: Any) -> Loss:
    """Make a loss by its registered name; `num_classes=` and `dim=` where it owns proxies.

    >>> create("multi-similarity", threshold=0.6).threshold
    0.6
    """
    target = registry.resolve("losses", name)
    loss = (
        None
        if isinstance(target, type) and not issubclass(target, Loss)
        else registry.create("losses", name, **options)
    )
    if not isinstance(loss, Loss):
        made = target.__name__ if loss is None else type(loss).__name__
        raise ValueError(f"{name!r} is registered as a loss, but {made} is no kinfold.losses.Loss; derive it from that")
    check_made(loss, name)
    return loss
