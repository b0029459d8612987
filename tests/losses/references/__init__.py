"""Slow reference values of the losses, for comparison with the library.

Every function is written as loops over single pairs, so that it can be read next to its formula. All arithmetic is in
double precision. The functions return the value of the reduction "mean".

Notation used in the docstrings:

* ``a`` is an anchor row, ``P`` and ``N`` are its positives and negatives among the reference rows.
* ``[z]+`` is ``max(z, 0)``.
* ``s`` (cos) is the cosine of two rows, ``d`` the Euclidean distance of the two rows after scaling to unit length,
  ``d*`` the Euclidean distance of the rows as given, ``dot`` their plain inner product.
* An anchor is *valid* when it has at least one positive and at least one negative.
* A mean over nothing is zero. A loss that averages over valid anchors or over triplets is zero when there are none, and
  this includes its regulariser.
"""

from collections.abc import Callable

from tests.losses.references.anchors import (
    angular,
    circle,
    generalized_lifted,
    hap2s,
    lifted,
    lifted_oh_song,
    multi_similarity,
    n_pair,
    nt_xent,
    supcon,
)
from tests.losses.references.pairs import (
    binomial,
    contrastive,
    histogram,
    margin_loss,
    similarity_contrastive,
    similarity_margin,
)
from tests.losses.references.proxies import (
    arcface,
    cosface,
    normalized_softmax,
    proxy_anchor,
    proxy_nca,
    soft_triple,
    softmax,
)
from tests.losses.references.rankings import fastap, precision_at_k, ranked_list, smooth_ap
from tests.losses.references.tuples import (
    binomial_from_triplets,
    contrastive_from_triplets,
    margin_from_triplets,
    quadruplet,
    similarity_contrastive_from_triplets,
    similarity_margin_from_triplets,
    snr,
    snr_from_triplets,
    triplet,
    triplet_from_triplets,
)

__all__ = ["PROXY_REFERENCES", "REFERENCES", "TRIPLET_REFERENCES"]

REFERENCES: dict[str, Callable[..., float]] = {
    "similarity-margin": similarity_margin,
    "similarity-contrastive": similarity_contrastive,
    "binomial": binomial,
    "contrastive": contrastive,
    "margin": margin_loss,
    "triplet": triplet,
    "lifted": lifted,
    "lifted-oh-song": lifted_oh_song,
    "generalized-lifted": generalized_lifted,
    "n-pair": n_pair,
    "angular": angular,
    "histogram": histogram,
    "multi-similarity": multi_similarity,
    "fastap": fastap,
    "ranked-list": ranked_list,
    "hap2s": hap2s,
    "nt-xent": nt_xent,
    "supcon": supcon,
    "circle": circle,
    "smooth-ap": smooth_ap,
    "precision-at-k": precision_at_k,
    "snr": snr,
}

TRIPLET_REFERENCES: dict[str, Callable[..., float]] = {
    "contrastive": contrastive_from_triplets,
    "triplet": triplet_from_triplets,
    "margin": margin_from_triplets,
    "snr": snr_from_triplets,
    "similarity-margin": similarity_margin_from_triplets,
    "binomial": binomial_from_triplets,
    "similarity-contrastive": similarity_contrastive_from_triplets,
    "quadruplet": quadruplet,
}

PROXY_REFERENCES: dict[str, Callable[..., float]] = {
    "proxy-nca": proxy_nca,
    "proxy-anchor": proxy_anchor,
    "normalized-softmax": normalized_softmax,
    "softmax": softmax,
    "cosface": cosface,
    "arcface": arcface,
    "soft-triple": soft_triple,
}
