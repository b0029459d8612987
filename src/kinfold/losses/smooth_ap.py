"""Smooth-AP: average precision with sigmoids instead of comparisons (Brown et al., ECCV 2020)."""

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import list_columns, mask_to_float


def smooth_ap(similarity: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float = 0.01) -> Tensor:
    """Loss of every anchor; time and memory O(B P R) for P positives per anchor.

    1 - mean_p (rank of p among the positives) / (rank of p among all)
    rank = 1 + sum over the other items j of sigmoid((s_j - s_p) / temperature)

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        temperature: Width of the sigmoid; a small one is close to a comparison.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> smooth_ap(torch.tensor([[0.9, 0.1]]), positives, ~positives)
        tensor([0.])
        >>> smooth_ap(torch.tensor([[0.1, 0.9]]), positives, ~positives)
        tensor([0.5000])
    """
    index, exists = list_columns(positives)
    positive = similarity.gather(1, index)  # (B, W)
    positive_rank = torch.sigmoid((positive[:, None, :] - positive[:, :, None]) / temperature)  # (B, W, W)
    positive_rank = torch.where(exists[:, None, :], positive_rank, 0.0).sum(dim=2) + 0.5  # the item itself counts half
    scaled, is_negative = similarity / temperature, mask_to_float(negatives, similarity)
    negatives_above = torch.stack(
        [
            torch.linalg.vecdot(torch.sigmoid(scaled - column[:, None]), is_negative)
            for column in (positive / temperature).unbind(dim=1)
        ],
        dim=1,
    )  # (B, W)
    precision = torch.where(exists, positive_rank / (positive_rank + negatives_above), 0.0)
    count = exists.sum(dim=1)
    return torch.where(count > 0, 1.0 - precision.sum(dim=1) / count.clamp(min=1), 0.0)


class SmoothAP(Loss):
    """Mean over anchors. The anchor is not part of its own ranking (in the authors' code it is).

    Args:
        temperature: Width of the sigmoid; a small one is close to a comparison.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, temperature: float = 0.01, distance: Distance | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(smooth_ap(pairs.scores, pairs.positives, pairs.negatives, temperature=self.temperature))
