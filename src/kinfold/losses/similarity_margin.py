"""Similarity margin loss: positives above and negatives below a threshold, each by a margin (Qi et al., ECCV 2020)."""

from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_to_float


def similarity_margin(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.2, threshold: float = 0.5
) -> Tensor:
    """Loss of every pair, zero where a pair is neither positive nor negative.

    positive: [margin + threshold - s]+        negative: [margin + s - threshold]+

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        margin: Required distance from the threshold.
        threshold: Similarity that separates positives from negatives.

    Returns:
        (B, R).

    Examples:
        >>> import torch
        >>> similarity = torch.tensor([[0.9, 0.6, 0.6, 0.2]])
        >>> positives = torch.tensor([[True, True, False, False]])
        >>> similarity_margin(similarity, positives, ~positives).round(decimals=4)
        tensor([[0.0000, 0.1000, 0.3000, 0.0000]])
    """
    positive, negative = mask_to_float(positives, similarity), mask_to_float(negatives, similarity)
    sign = negative - positive
    offset = positive.mul_(margin + threshold).add_(negative, alpha=margin - threshold)
    return (sign * similarity).add_(offset).relu_()


class SimilarityMargin(Loss):
    """Hinge on the cosine of every pair; the mean is over all pairs.

    The pair loss of the DRO framework (Qi et al., 2020, "A Simple and Effective Framework for Pairwise Deep Metric
    Learning"), where it is called margin loss. The margin loss of Wu et al. is `margin`.

    Args:
        margin: Required distance from the threshold.
        threshold: Similarity that separates positives from negatives.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    kind = "pair"
    elementwise = True

    def __init__(
        self,
        margin: float = 0.2,
        threshold: float = 0.5,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        self.margin = margin
        self.threshold = threshold

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = similarity_margin(
            pairs.scores, pairs.positives, pairs.negatives, margin=self.margin, threshold=self.threshold
        )
        return pairs.per_pair(values)
