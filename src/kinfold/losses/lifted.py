"""Lifted structure: all positives and all negatives of an anchor in one smooth hinge (Oh Song et al., CVPR 2016)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import count, list_columns
from kinfold.registry import check_choice


def lifted(similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Loss of every anchor.

    [log sum_p exp(-s_ap) + log sum_n exp(s_an)]+

    There is no threshold: on both sides it would cancel.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> lifted(torch.tensor([[0.2, 0.9]]), positives, ~positives).round(decimals=4)
        tensor([0.7000])
    """
    return relu(masked_logsumexp(similarity, positives, -1.0) + masked_logsumexp(similarity, negatives))


def lifted_oh_song(distance: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 1.0) -> Tensor:
    """Loss of a batch compared with itself, as originally published; the masks are symmetric.

    1 / (2 |P|) sum over positive pairs (i, j) of [J_ij]+^2
    J_ij = log(sum_{k in N_i} exp(margin - d_ik) + sum_{l in N_j} exp(margin - d_jl)) + d_ij

    Args:
        distance: Distances, (B, B).
        positives, negatives: Boolean masks, (B, B).
        margin: Distance that negatives should keep.

    Returns:
        A scalar.
    """
    push = masked_logsumexp(distance, negatives, -1.0) + margin  # (B,)
    index, exists = list_columns(positives)  # (B, W)
    joint = torch.logaddexp(push[:, None], push[index]) + distance.gather(1, index)
    # a positive pair whose two items both have no negatives is not counted
    has_negatives = count(negatives) > 0
    counted = exists & (has_negatives[:, None] | has_negatives[index])
    hinges = torch.where(counted, relu(joint), 0.0).square()
    return hinges.sum() / (2 * counted.sum().clamp(min=1))


class Lifted(Loss):
    """Mean of the lifted structure loss over anchors, on cosines.

    The standard form equals the grouped KL of the DRO framework at gamma = 1 (Qi et al., 2020).

    Args:
        variant: "standard", or "oh-song", the original: squared hinges over positive pairs, each against the negatives
            of both its items, on Euclidean distances of unit vectors. It is one value per batch and takes no reference
            set.
        margin: Distance that negatives should keep, for "oh-song" only; by default 1.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none" ("oh-song": "mean" or "sum").
    """

    def __init__(
        self,
        variant: Literal["standard", "oh-song"] = "standard",
        margin: float | None = None,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        check_choice("variant", variant, ("standard", "oh-song"))
        if variant == "standard" and margin is not None:
            raise ValueError(
                f"margin={margin:g} belongs to variant='oh-song': in the standard form it would cancel; leave it out"
            )
        if variant == "oh-song":
            self.kind = "batch"
            self.measure = "euclidean"
            self.supports_chunks = False
        super().__init__(reduction, distance)
        self.variant = variant
        self.margin = 1.0 if margin is None else margin

    def terms(self, pairs: ScoredPairs) -> Terms:
        if self.variant == "standard":
            return pairs.per_anchor(lifted(pairs.scores, pairs.positives, pairs.negatives))
        if not pairs.symmetric:
            raise ValueError("variant='oh-song' needs the negatives of both items of a pair: leave out ref_embeddings")
        return Terms.over(lifted_oh_song(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin), 1)
