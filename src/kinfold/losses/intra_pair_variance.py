"""Intra-pair variance loss: pairs of one sign should be equally similar (Yu and Tao, ICCV 2019)."""

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import mask_to_float


def intra_pair_variance(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    positive_tolerance: float = 0.01,
    negative_tolerance: float = 0.01,
) -> Tensor:
    """Loss of every pair, zero where a pair is neither positive nor negative.

    positive: [(1 - positive_tolerance) m+ - s]+^2        negative: [s - (1 + negative_tolerance) m-]+^2

    m+ and m- are the mean cosines of the positive and of the negative pairs.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        positive_tolerance, negative_tolerance: Share of the mean up to which a deviation costs nothing.

    Returns:
        (B, R).

    Examples:
        >>> positives = torch.tensor([[True, True, False]])
        >>> intra_pair_variance(torch.tensor([[0.2, 0.8, 0.3]]), positives, ~positives).round(decimals=4)
        tensor([[0.0870, 0.0000, 0.0000]])
    """
    positive, negative = mask_to_float(positives, similarity), mask_to_float(negatives, similarity)
    positive_mean = (similarity * positive).sum() / positive.sum().clamp(min=1.0)
    negative_mean = (similarity * negative).sum() / negative.sum().clamp(min=1.0)
    below = relu((1.0 - positive_tolerance) * positive_mean - similarity) * positive
    above = relu(similarity - (1.0 + negative_tolerance) * negative_mean) * negative
    return (below + above).square()


class IntraPairVariance(Loss):
    """Mean over positive pairs plus mean over negative pairs. The paper adds it to the tuplet margin loss.

    The mean cosines are those of the whole batch: the matrix of pairs is not processed in chunks.

    Args:
        positive_tolerance, negative_tolerance: Share of the mean up to which a deviation costs nothing; 0.01 as in the
            paper.
        reduction: "mean" or "sum", which are the same for one value per batch.
    """

    kind = "batch"
    supports_chunks = False
    fixed_measure = "its tolerances are shares of a mean cosine, and a distance has no such zero"

    def __init__(
        self, positive_tolerance: float = 0.01, negative_tolerance: float = 0.01, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        self.positive_tolerance = positive_tolerance
        self.negative_tolerance = negative_tolerance

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = intra_pair_variance(
            pairs.scores,
            pairs.positives,
            pairs.negatives,
            positive_tolerance=self.positive_tolerance,
            negative_tolerance=self.negative_tolerance,
        )
        sides = pairs.per_side(values)
        return Terms(torch.where(sides.counts.sum() > 0, sides.mean(), 0.0), sides.sums, sides.counts)
