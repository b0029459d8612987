"""Terms of mined triplets and quadruplets."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kinfold.losses.checks import check_terms
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import PairBatch, Quadruplets, Triplets

if TYPE_CHECKING:
    from kinfold.losses.loss import Loss


def evaluate_tuples(loss: "Loss", raw: Tensor, batch: PairBatch, tuples: Triplets | Quadruplets) -> Terms:
    """Compute the terms of tuples from their raw scores (2 or 3, T).

    A loss of kind "pair" sees the pairs (a, p) and (a, n) of triplets; other losses have `tuple_terms`.
    """
    scores, name = loss.scoring.to_scores(raw), type(loss).__name__
    weights = None if batch.weights is None else batch.weights[tuples.anchor]  # (T,)
    if loss.kind == "pair" and isinstance(tuples, Triplets):
        nothing = torch.zeros_like(tuples.valid)
        labels = None if batch.labels is None else batch.labels[tuples.anchor]
        positives, negatives = torch.stack([tuples.valid, nothing]), torch.stack([nothing, tuples.valid])
        options: dict[str, Any] = {"labels": labels, "symmetric": batch.symmetric, "from_triplets": True}
        pairs = ScoredPairs(scores, positives, negatives, weights=weights, anchor_weights=weights, **options)
        terms = loss.terms(pairs)
        check_terms(terms, pairs, loss.kind, name)
        return terms._replace(values=terms.values.sum(dim=0))
    result = loss.tuple_terms(scores, tuples)
    if result is None and isinstance(tuples, Quadruplets):
        raise ValueError(f"{name} does not take quadruplets; the quadruplet loss does")
    if result is None:
        raise ValueError(
            f"{name} needs all pairs of an anchor and takes no triplets: use a miner that selects pairs (all, "
            "multi-similarity, semihard-pairs, distance-weighted-pairs), or none (--set miner.name=none)"
        )
    return result if weights is None else result.weight_by(weights)
