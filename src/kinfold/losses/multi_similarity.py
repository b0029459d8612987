"""Multi-similarity loss: informative pairs of each anchor with soft weights on both sides (Wang et al., CVPR 2019)."""

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.miners.informative_pairs import keep_informative
from kinfold.pairs.distances import Distance


def multi_similarity(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    positive_scale: float = 2.0,
    negative_scale: float = 40.0,
    threshold: float = 0.5,
) -> Tensor:
    """Loss of every anchor.

    (1/positive_scale) log(1 + sum_p exp(-positive_scale (s_ap - threshold)))
    + (1/negative_scale) log(1 + sum_n exp(negative_scale (s_an - threshold)))

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        positive_scale, negative_scale: How strongly hard pairs are preferred on each side.
        threshold: Similarity at which a pair changes from easy to hard.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> multi_similarity(torch.tensor([[0.5, 0.5]]), positives, ~positives).round(decimals=4)
        tensor([0.3639])
    """
    offset = similarity - threshold
    positive_term = softplus(masked_logsumexp(offset, positives, -positive_scale)) / positive_scale
    return positive_term + softplus(masked_logsumexp(offset, negatives, negative_scale)) / negative_scale


class MultiSimilarity(Loss):
    """Sum over anchors divided by the batch size, after the selection of informative pairs.

    Args:
        positive_scale: How strongly hard positives are preferred.
        negative_scale: How strongly hard negatives are preferred.
        threshold: Similarity at which a pair changes from easy to hard.
        epsilon: Tolerance of the pair selection, see `MultiSimilarityMiner`. None uses every pair; an anchor without
            positives or without negatives then still counts the other side.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        positive_scale: float = 2.0,
        negative_scale: float = 40.0,
        threshold: float = 0.5,
        epsilon: float | None = 0.1,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(positive_scale=positive_scale, negative_scale=negative_scale)
        self.positive_scale = positive_scale
        self.negative_scale = negative_scale
        self.threshold = threshold
        self.epsilon = epsilon

    def terms(self, pairs: ScoredPairs) -> Terms:
        positives, negatives = pairs.positives, pairs.negatives
        if self.epsilon is not None:
            positives, negatives = keep_informative(pairs.scores, positives, negatives, epsilon=self.epsilon)
        values = multi_similarity(
            pairs.scores,
            positives,
            negatives,
            positive_scale=self.positive_scale,
            negative_scale=self.negative_scale,
            threshold=self.threshold,
        )
        return Terms.over(values, torch.ones_like(values))
