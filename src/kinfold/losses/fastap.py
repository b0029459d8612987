"""FastAP: average precision of every query from soft histograms of its distances (Cakir et al., CVPR 2019)."""

from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.soft_histogram import soft_histogram
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import list_columns


def fastap(squared_distance: Tensor, positives: Tensor, negatives: Tensor, *, bins: int = 10) -> Tensor:
    """Loss of every anchor, from squared distances of unit vectors in [0, 4].

    1 - (1/n+) sum_l H+_l h+_l / H_l

    h+ and h are histograms of the positives and of all candidates on the nodes 0, 4/bins, .., 4; H+ and H are their
    cumulative sums. A pair is split between its two nearest nodes.

    Args:
        squared_distance: (B, R).
        positives, negatives: Boolean masks, (B, R).
        bins: Number of histogram bins.

    Returns:
        (B,).

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, True, False]])
        >>> fastap(torch.tensor([[0.0, 0.4, 4.0]]), positives, ~positives)
        tensor([0.])
        >>> fastap(torch.tensor([[4.0, 4.0, 0.0]]), positives, ~positives)
        tensor([0.3333])
    """
    position = squared_distance * (bins / 4)
    index, exists = list_columns(positives)  # positives are few: gather them first
    positive = soft_histogram(position.gather(1, index), exists, bins + 1)  # (B, bins + 1)
    every = positive + soft_histogram(position, negatives, bins + 1)
    positive_sum, every_sum = positive.cumsum(dim=1), every.cumsum(dim=1)
    precision = positive_sum / every_sum.masked_fill(every_sum <= 0, 1.0)
    return 1.0 - (precision * positive).sum(dim=1) / exists.sum(dim=1).clamp(min=1)


class FastAP(Loss):
    """Mean of 1 - average precision over anchors; designed for large batches.

    Args:
        bins: Number of histogram bins; 10 as in the authors' code.
        reduction: "mean", "sum" or "none".
    """

    measure = "squared-euclidean"
    fixed_measure = "its histogram covers the squared distances of unit vectors, 0 to 4"

    def __init__(self, bins: int = 10, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        if bins < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        self.bins = bins

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(fastap(pairs.scores, pairs.positives, pairs.negatives, bins=self.bins))
