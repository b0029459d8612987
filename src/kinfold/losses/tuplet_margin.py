"""Tuplet margin loss: one positive, with an easier angle, against all negatives (Yu and Tao, ICCV 2019)."""

import math

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import list_columns
from kinfold.pairs.measures import safe_sqrt


def tuplet_margin(
    squared_distance: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.1, scale: float = 64.0
) -> Tensor:
    """Loss of every anchor, averaged over its positives.

    mean_p log(1 + sum_n exp(scale (cos(theta_an) - cos(theta_ap - margin))))

    Cosine and sine of the angle come from the squared distance q of unit vectors, 1 - q / 2 and sqrt(q (1 - q / 4)):
    no digits are lost where two items nearly coincide.

    Args:
        squared_distance: Squared distances of unit vectors, (B, R).
        positives, negatives: Boolean masks, (B, R).
        margin: Angle by which positives seem nearer, in radians.
        scale: Factor of the cosines.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> tuplet_margin(torch.tensor([[2.0, 2.0]]), positives, ~positives, margin=0.0).round(decimals=4)
        tensor([0.6931])
    """
    push = masked_logsumexp(1.0 - squared_distance / 2, negatives, scale)[:, None]
    index, exists = list_columns(positives)
    squared = squared_distance.gather(1, index)  # (B, W)
    sine = safe_sqrt(squared * (1.0 - squared / 4))
    eased = (1.0 - squared / 2) * math.cos(margin) + sine * math.sin(margin)
    values = torch.where(exists, softplus(push - scale * eased), 0.0)
    return values.sum(dim=1) / exists.sum(dim=1).clamp(min=1)


class TupletMargin(Loss):
    """Mean over anchors of the tuplet margin loss.

    Args:
        margin: Angle by which positives seem nearer, in radians; 0.1 (5.73 degrees) as in the paper.
        scale: Factor of the cosines; 64 as in the paper.
        reduction: "mean", "sum" or "none".
    """

    measure = "squared-euclidean"
    fixed_measure = "its margin is an angle between unit vectors"

    def __init__(self, margin: float = 0.1, scale: float = 64.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        check_positive(scale=scale)
        if not 0 <= margin < math.pi / 2:
            raise ValueError(f"margin must be in [0, pi / 2) radians, got {margin}")
        self.margin = margin
        self.scale = scale

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = tuplet_margin(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin, scale=self.scale)
        return pairs.per_anchor(values)
