"""Contrastive loss on similarities: positives to cosine one, negatives below a threshold (Qi et al., ECCV 2020)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import mask_to_float
from kinfold.registry import check_choice


def similarity_contrastive(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, threshold: float = 0.5
) -> Tensor:
    """Loss of every pair, zero where a pair is neither positive nor negative.

    positive: 1 - s        negative: [s - threshold]+

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        threshold: Similarity up to which a negative costs nothing.

    Returns:
        (B, R).

    Examples:
        >>> positives = torch.tensor([[True, False, False]])
        >>> similarity_contrastive(torch.tensor([[0.7, 0.7, 0.2]]), positives, ~positives).round(decimals=4)
        tensor([[0.3000, 0.2000, 0.0000]])
    """
    return _contrast_gap(1.0 - similarity, positives, negatives, threshold)


def _contrast_gap(gap: Tensor, positives: Tensor, negatives: Tensor, threshold: float) -> Tensor:
    """Loss of every pair from the gap 1 - s, (B, R)."""
    return mask_to_float(positives, gap) * gap + mask_to_float(negatives, gap) * relu((1.0 - threshold) - gap)


class SimilarityContrastive(Loss):
    """Mean over all pairs; a pair loss of the DRO framework (Qi et al., 2020).

    1 - s is computed as half of the squared distance of unit vectors, which is exact where two positives nearly
    coincide: a robust loss ranks and weights pairs by it.

    Args:
        threshold: Similarity up to which a negative costs nothing.
        variant: "standard", or "as-coded", as in the authors' code: a negative above the threshold costs s itself, one
            below it is removed, also from the count. The slope of a pair is the same, its rank among the losses is not.
        reduction: "mean", "sum" or "none".
    """

    kind = "pair"
    elementwise = True
    measure = "squared-euclidean"
    fixed_measure = "its cost 1 - s is half the squared distance of unit vectors; contrastive takes one"

    def __init__(
        self,
        threshold: float = 0.5,
        variant: Literal["standard", "as-coded"] = "standard",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        check_choice("variant", variant, ("standard", "as-coded"))
        self.threshold = threshold
        self.variant = variant

    def terms(self, pairs: ScoredPairs) -> Terms:
        gap = pairs.scores / 2  # 1 - s
        values = _contrast_gap(gap, pairs.positives, pairs.negatives, self.threshold)
        if self.variant == "standard":
            return pairs.per_pair(values)
        above = pairs.negatives & (gap < 1.0 - self.threshold)
        values = torch.where(above, values + self.threshold, values)
        return pairs.per_pair(values, pairs.positives | above)
