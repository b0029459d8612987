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
    kin, other = number(positives, similarity), number(negatives, similarity)
    return kin * (1.0 - similarity) + other * relu(similarity - threshold)


class SimilarityContrastive(Loss):
    """Mean over all pairs; a pair loss of the DRO framework (Qi et al., 2020).

    `variant="as-coded"` is what the authors' code computes: a negative above the threshold costs s itself, one below it
    is removed, also from the count. The slope of a pair is the same, its rank among the losses is not.
    """

    kind = "pair"

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
        values = similarity_contrastive(pairs.scores, pairs.positives, pairs.negatives, threshold=self.threshold)
        if self.variant == "standard":
            return pairs.per_pair(values)
        above = pairs.negatives & (pairs.scores > self.threshold)
        values = torch.where(above, values + self.threshold, values)
        weights = (pairs.positives | above).to(values.dtype)
        if pairs.weights is not None:
            weights = weights * pairs.weights
        return Terms.over(values * weights, weights.sum())
