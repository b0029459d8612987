"""Binomial deviance: a smooth pairwise hinge with different slopes for kin and others (Yi et al., 2014)."""

from torch import Tensor

from kinfold.losses.logsumexp import softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import number


def binomial(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    positive_scale: float = 2.0,
    negative_scale: float = 40.0,
    threshold: float = 0.5,
) -> Tensor:
    """Loss of every pair, (B, R); zero where a pair is in neither mask.

    positive: (2/positive_scale) log(1 + exp(-positive_scale (s - threshold)))
    negative: (2/negative_scale) log(1 + exp( negative_scale (s - threshold)))

    >>> import torch
    >>> kin = torch.tensor([[True, False]])
    >>> binomial(torch.tensor([[0.5, 0.5]]), kin, ~kin).round(decimals=4)
    tensor([[0.6931, 0.0347]])
    """
    kin, other = number(positives, similarity), number(negatives, similarity)
    slope = negative_scale * other - positive_scale * kin
    return softplus(slope * (similarity - threshold)) * (2 / positive_scale * kin + 2 / negative_scale * other)


class Binomial(Loss):
    """Every pair counts, hard ones more; the mean is over all pairs.

    Both slopes are bounded by 2, but the values differ: a positive at the threshold costs 0.69, a negative 0.035.
    Defaults are those of Qi et al. (2020); Yi et al. ("Deep Metric Learning for Practical Person Re-Identification")
    wrote the asymmetry as a cost.
    """

    kind = "pair"

    def __init__(
        self,
        positive_scale: float = 2.0,
        negative_scale: float = 40.0,
        threshold: float = 0.5,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        positive(positive_scale=positive_scale, negative_scale=negative_scale)
        self.positive_scale = positive_scale
        self.negative_scale = negative_scale
        self.threshold = threshold

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_pair(
            binomial(
                pairs.scores,
                pairs.positives,
                pairs.negatives,
                positive_scale=self.positive_scale,
                negative_scale=self.negative_scale,
                threshold=self.threshold,
            )
        )
