"""Lifted structure on similarities: the softest kin against the nearest others of each anchor, all at once."""

from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms, masked_logsumexp


def lifted(similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Loss of every anchor, (B,).

    [log sum_p exp(-s_ap) + log sum_n exp(s_an)]+

    A threshold on both sides would cancel, so there is none.

    >>> import torch
    >>> kin = torch.tensor([[True, False]])
    >>> lifted(torch.tensor([[0.2, 0.9]]), kin, ~kin).round(decimals=4)
    tensor([0.7000])
    """
    return relu(masked_logsumexp(-similarity, positives) + masked_logsumexp(similarity, negatives))


class Lifted(Loss):
    """Mean over anchors. The form that the grouped KL of the DRO framework recovers at gamma = 1 (Qi et al., 2020),
    after Oh Song et al. (CVPR 2016) and Hermans et al. (2017)."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(lifted(pairs.scores, pairs.positives, pairs.negatives))
