"""Contrastive: kin to one point, others at least a margin apart (Hadsell et al., CVPR 2006)."""

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import Relation
from kinfold.pairs.masks import count, number


def contrastive(
    distance: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    margin: float = 1.0,
    positive_margin: float = 0.0,
    squared: bool = False,
) -> Tensor:
    """Loss of every pair, (B, R); zero where a pair is in neither mask.

    positive: [d - positive_margin]+        negative: [margin - d]+        (each squared with `squared`)

    >>> kin = torch.tensor([[True, False, False]])
    >>> contrastive(torch.tensor([[0.3, 0.4, 1.2]]), kin, ~kin).round(decimals=4)
    tensor([[0.3000, 0.6000, 0.0000]])
    """
    kin, other = number(positives, distance), number(negatives, distance)
    hinge = relu((kin - other) * distance + (margin * other - positive_margin * kin))
    return hinge.square() if squared else hinge


class Contrastive(Loss):
    """Mean over positive pairs plus mean over negative pairs, on Euclidean distances of unit vectors.

    Linear hinges as in the study of Roth et al. (ICML 2020); `squared=True` is the original form.
    """

    kind = "pair"
    measure = "euclidean"

    def __init__(
        self,
        margin: float = 1.0,
        positive_margin: float = 0.0,
        squared: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.margin = margin
        self.positive_margin = positive_margin
        self.squared = squared

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = contrastive(
            pairs.scores,
            pairs.positives,
            pairs.negatives,
            margin=self.margin,
            positive_margin=self.positive_margin,
            squared=self.squared,
        )
        return pairs.per_side(values)

    def counts(self, relation: Relation) -> Tensor:
        return torch.stack([count(mask).sum() for mask in (relation.positives, relation.negatives)])
