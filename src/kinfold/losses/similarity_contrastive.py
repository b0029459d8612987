"""Contrastive on similarities: kin to cosine one, others below a threshold."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import number


def similarity_contrastive(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, threshold: float = 0.5
) -> Tensor:
    """Loss of every pair, (B, R); zero where a pair is in neither mask.

    positive: 1 - s        negative: [s - threshold]+

    >>> kin = torch.tensor([[True, False, False]])
    >>> similarity_contrastive(torch.tensor([[0.7, 0.7, 0.2]]), kin, ~kin).round(decimals=4)
    tensor([[0.3000, 0.2000, 0.0000]])
    """
    return _loss_of_gap(1.0 - similarity, positives, negatives, threshold)


def _loss_of_gap(gap: Tensor, positives: Tensor, negatives: Tensor, threshold: float) -> Tensor:
    """Return the loss of every pair from 1 - s, (B, R)."""
    return number(positives, gap) * gap + number(negatives, gap) * relu((1.0 - threshold) - gap)


class SimilarityContrastive(Loss):
    """Mean over all pairs; a pair loss of the DRO framework (Qi et al., 2020).

    `variant="as-coded"` is what the authors' code computes: a negative above the threshold costs s itself, one below it
    is removed, also from the count. The slope of a pair is the same, its rank among the losses is not.

    1 - s is measured as half of the squared distance of unit vectors, which is exact where two positives nearly
    coincide: a robust loss ranks and weighs pairs by it.
    """

    kind = "pair"
    measure = "squared-euclidean"

    def __init__(
        self,
        threshold: float = 0.5,
        variant: Literal["standard", "as-coded"] = "standard",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if variant not in ("standard", "as-coded"):
            raise ValueError(f"variant must be 'standard' or 'as-coded', got {variant!r}")
        self.threshold = threshold
        self.variant = variant

    def terms(self, pairs: ScoredPairs) -> Terms:
        gap = pairs.scores / 2  # 1 - s
        values = _loss_of_gap(gap, pairs.positives, pairs.negatives, self.threshold)
        if self.variant == "standard":
            return pairs.per_pair(values)
        above = pairs.negatives & (gap < 1.0 - self.threshold)
        values = torch.where(above, values + self.threshold, values)
        return pairs.per_pair(values, pairs.positives | above)
