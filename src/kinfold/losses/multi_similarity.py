"""Multi-similarity: informative pairs of each anchor, weighted softly on both sides (Wang et al., CVPR 2019)."""

from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.miners.multi_similarity import keep_informative


def multi_similarity(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    positive_scale: float = 2.0,
    negative_scale: float = 40.0,
    threshold: float = 0.5,
) -> Tensor:
    """Loss of every anchor, (B,).

    (1/positive_scale) log(1 + sum_p exp(-positive_scale (s_ap - threshold)))
    + (1/negative_scale) log(1 + sum_n exp(negative_scale (s_an - threshold)))

    >>> import torch
    >>> kin = torch.tensor([[True, False]])
    >>> multi_similarity(torch.tensor([[0.5, 0.5]]), kin, ~kin).round(decimals=4)
    tensor([0.3639])
    """
    offset = similarity - threshold
    kin = softplus(masked_logsumexp(offset, positives, -positive_scale)) / positive_scale
    return kin + softplus(masked_logsumexp(offset, negatives, negative_scale)) / negative_scale


class MultiSimilarity(Loss):
    """Sum over anchors divided by the batch size, after the selection of informative pairs with `epsilon`.

    `epsilon=None` takes every pair; an anchor that lacks one side then still counts the other.
    """

    def __init__(
        self,
        positive_scale: float = 2.0,
        negative_scale: float = 40.0,
        threshold: float = 0.5,
        epsilon: float | None = 0.1,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        positive(positive_scale=positive_scale, negative_scale=negative_scale)
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
        return Terms.over(values, values.shape[0])
