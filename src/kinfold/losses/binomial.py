"""Binomial deviance: a smooth hinge with different slopes for positives and negatives (Yi et al., 2014)."""

from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.logsumexp import softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_to_float


def binomial(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    positive_scale: float = 2.0,
    negative_scale: float = 40.0,
    threshold: float = 0.5,
) -> Tensor:
    """Loss of every pair, zero where a pair is neither positive nor negative.

    positive: (2/positive_scale) log(1 + exp(-positive_scale (s - threshold)))
    negative: (2/negative_scale) log(1 + exp( negative_scale (s - threshold)))

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        positive_scale, negative_scale: Steepness for positive and negative pairs.
        threshold: Similarity at which a pair changes from easy to hard.

    Returns:
        (B, R).

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, False]])
        >>> binomial(torch.tensor([[0.5, 0.5]]), positives, ~positives).round(decimals=4)
        tensor([[0.6931, 0.0347]])
    """
    positive, negative = mask_to_float(positives, similarity), mask_to_float(negatives, similarity)
    slope = negative_scale * negative - positive_scale * positive
    weight = 2 / positive_scale * positive + 2 / negative_scale * negative
    return softplus(slope * (similarity - threshold)) * weight


class Binomial(Loss):
    """Mean binomial deviance over all pairs: every pair counts, hard ones more.

    Both slopes are bounded by 2, but the values differ: at the threshold a positive costs 0.69 and a negative 0.035.
    The defaults are those of Qi et al. (2020). Yi et al. wrote the asymmetry as a cost.

    Args:
        positive_scale: Steepness for positive pairs.
        negative_scale: Steepness for negative pairs.
        threshold: Similarity at which a pair changes from easy to hard.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    kind = "pair"
    elementwise = True

    def __init__(
        self,
        positive_scale: float = 2.0,
        negative_scale: float = 40.0,
        threshold: float = 0.5,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(positive_scale=positive_scale, negative_scale=negative_scale)
        self.positive_scale = positive_scale
        self.negative_scale = negative_scale
        self.threshold = threshold

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = binomial(
            pairs.scores,
            pairs.positives,
            pairs.negatives,
            positive_scale=self.positive_scale,
            negative_scale=self.negative_scale,
            threshold=self.threshold,
        )
        return pairs.per_pair(values)
