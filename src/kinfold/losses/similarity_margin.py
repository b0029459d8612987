"""Similarity margin: kin above a threshold and others below it, each by a margin."""

from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import number


def similarity_margin(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.2, threshold: float = 0.5
) -> Tensor:
    """Loss of every pair, (B, R); zero where a pair is in neither mask.

    positive: [margin + threshold - s]+        negative: [margin + s - threshold]+

    >>> import torch
    >>> s = torch.tensor([[0.9, 0.6, 0.6, 0.2]])
    >>> kin = torch.tensor([[True, True, False, False]])
    >>> similarity_margin(s, kin, ~kin).round(decimals=4)
    tensor([[0.0000, 0.1000, 0.3000, 0.0000]])
    """
    kin, other = number(positives, similarity), number(negatives, similarity)
    violation = (similarity - threshold) * (other - kin)
    return relu(violation + margin) * (kin + other)


class SimilarityMargin(Loss):
    """Hinge on the cosine of every pair; the mean is over all pairs.

    The pair loss of the DRO framework (Qi et al., 2020, "A Simple and Effective Framework for Pairwise Deep Metric
    Learning"), there called margin loss; the margin loss of Wu et al. is `margin`.
    """

    kind = "pair"

    def __init__(self, margin: float = 0.2, threshold: float = 0.5, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin
        self.threshold = threshold

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_pair(
            similarity_margin(
                pairs.scores, pairs.positives, pairs.negatives, margin=self.margin, threshold=self.threshold
            )
        )
