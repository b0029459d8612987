"""FastAP: average precision of every query by soft histograms of its distances (Cakir et al., CVPR 2019)."""

from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.soft_histogram import soft_histogram
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import columns


def fastap(squared_distance: Tensor, positives: Tensor, negatives: Tensor, *, bins: int = 10) -> Tensor:
    """Loss of every anchor, (B,), from squared distances of unit vectors in [0, 4].

    1 - (1/n+) sum_l H+_l h+_l / H_l

    h+ and h are histograms of the positives and of all candidates on the nodes 0, 4/bins, .., 4; H+ and H their
    cumulative sums. A pair is shared by its two nearest nodes.

    >>> import torch
    >>> kin = torch.tensor([[True, True, False]])
    >>> fastap(torch.tensor([[0.0, 0.4, 4.0]]), kin, ~kin), fastap(torch.tensor([[4.0, 4.0, 0.0]]), kin, ~kin)
    (tensor([0.]), tensor([0.3333]))
    """
    place = squared_distance * (bins / 4)
    index, exists = columns(positives)  # a few of many: taken out first
    kin = soft_histogram(place.gather(1, index), exists, bins + 1)  # (B, bins + 1)
    every = kin + soft_histogram(place, negatives, bins + 1)
    kin_sum, every_sum = kin.cumsum(dim=1), every.cumsum(dim=1)
    precision = kin_sum / every_sum.masked_fill(every_sum <= 0, 1.0)
    return 1.0 - (precision * kin).sum(dim=1) / exists.sum(dim=1).clamp(min=1)


class FastAP(Loss):
    """Mean over anchors. `bins=10` as in the authors' code; large batches are what it was made for."""

    measure = "squared-euclidean"

    def __init__(self, bins: int = 10, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        if bins < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        self.bins = bins

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(fastap(pairs.scores, pairs.positives, pairs.negatives, bins=self.bins))
