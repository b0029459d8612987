"""Threshold-consistent margin: only pairs beyond two fixed cosines count (Zhang et al., ICLR 2024)."""

from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_to_float


def threshold_consistent_margin(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    positive_threshold: float = 0.9,
    negative_threshold: float = 0.5,
) -> Tensor:
    """Loss of every pair, zero where a pair is neither positive nor negative.

    positive: [positive_threshold - s]+        negative: [s - negative_threshold]+

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        positive_threshold: Cosine from which a positive costs nothing.
        negative_threshold: Cosine up to which a negative costs nothing.

    Returns:
        (B, R).

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, False, False]])
        >>> threshold_consistent_margin(torch.tensor([[0.7, 0.6, 0.2]]), positives, ~positives).round(decimals=4)
        tensor([[0.2000, 0.1000, 0.0000]])
    """
    positive, negative = mask_to_float(positives, similarity), mask_to_float(negatives, similarity)
    sign = negative - positive
    offset = positive.mul_(positive_threshold).sub_(negative, alpha=negative_threshold)
    return (sign * similarity).add_(offset).relu_()


class ThresholdConsistentMargin(Loss):
    """Mean over the violating positive pairs plus mean over the violating negative pairs.

    The paper adds it to another loss, so that one threshold serves all classes.

    Args:
        positive_threshold: Cosine from which a positive costs nothing; 0.9 as in the paper.
        negative_threshold: Cosine up to which a negative costs nothing; 0.5 as in the paper.
        positive_weight, negative_weight: Factors of the two means.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    kind = "pair"
    elementwise = True

    def __init__(
        self,
        positive_threshold: float = 0.9,
        negative_threshold: float = 0.5,
        positive_weight: float = 1.0,
        negative_weight: float = 1.0,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        self.positive_threshold = positive_threshold
        self.negative_threshold = negative_threshold
        self.positive_weight = positive_weight
        self.negative_weight = negative_weight

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = threshold_consistent_margin(
            pairs.scores,
            pairs.positives,
            pairs.negatives,
            positive_threshold=self.positive_threshold,
            negative_threshold=self.negative_threshold,
        )
        active = values.detach().sign()
        if self.positive_weight != 1.0 or self.negative_weight != 1.0:
            positive, negative = mask_to_float(pairs.positives, values), mask_to_float(pairs.negatives, values)
            values = values * (self.positive_weight * positive + self.negative_weight * negative)
        return pairs.per_side(values, active)
