"""SNR loss: a triplet loss on signal-to-noise ratios instead of distances (Yuan et al., CVPR 2019)."""

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.triplet import all_triplets
from kinfold.pairs import Quadruplets, Triplets


class SNR(Loss):
    """Sum over triplets divided by the number of violated ones, plus a penalty on feature sums.

    [SNR(a, p) - SNR(a, n) + margin]+,   SNR(a, x) = Var(a - x) / Var(a) over the features of unit vectors

    The penalty, regularization * mean |sum of the features|, keeps features at mean zero, which the ratio assumes. Roth
    et al. (ICML 2020) used regularization=0 with their distance-weighted miner.

    Args:
        margin: Required gap between the ratios of the positive and the negative.
        regularization: Weight of the penalty.
        reduction: "mean", "sum" or "none".

    Examples:
        >>> x, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> SNR(regularization=0.0)(x, y).round(decimals=4)
        tensor(0.2000)
    """

    measure = "snr"
    fixed_measure = "its ratio is the distance; triplet(squared=False, distance='snr') has no penalty"

    def __init__(self, margin: float = 0.2, regularization: float = 0.005, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin
        self.regularization = regularization

    def terms(self, pairs: ScoredPairs) -> Terms:
        values, active = all_triplets(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin)
        return Terms.over(values, active)

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        if isinstance(tuples, Quadruplets):
            return None
        values = torch.where(tuples.valid, relu(scores[0] - scores[1] + self.margin), 0.0)
        return Terms.over(values, values > 0)

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        if self.regularization == 0:
            return None
        length: Tensor = torch.linalg.vector_norm(embeddings, dim=1)  # a normalized copy would cost more
        is_usual = (length > 1e-12) & length.isfinite()
        return self.regularization * torch.where(is_usual, embeddings.sum(dim=1).abs() / length.clamp(min=1e-12), 0.0)
