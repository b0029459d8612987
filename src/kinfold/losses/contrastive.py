"""Contrastive loss: positives to one point, negatives at least a margin apart (Hadsell et al., CVPR 2006)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_to_float
from kinfold.pairs.relation_source import RelationSource
from kinfold.registry import check_choice


def contrastive(
    distance: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    margin: float = 1.0,
    positive_margin: float = 0.0,
    squared: bool = False,
) -> Tensor:
    """Loss of every pair, zero where a pair is neither positive nor negative.

    positive: [d - positive_margin]+        negative: [margin - d]+        (each squared with `squared`)

    Args:
        distance: Distances, (B, R).
        positives, negatives: Boolean masks, (B, R).
        margin: Distance from which a negative costs nothing.
        positive_margin: Distance up to which a positive costs nothing.
        squared: Whether the hinges are squared.

    Returns:
        (B, R).

    Examples:
        >>> positives = torch.tensor([[True, False, False]])
        >>> contrastive(torch.tensor([[0.3, 0.4, 1.2]]), positives, ~positives).round(decimals=4)
        tensor([[0.3000, 0.6000, 0.0000]])
    """
    positive, negative = mask_to_float(positives, distance), mask_to_float(negatives, distance)
    hinge = relu((positive - negative) * distance + (margin * negative - positive_margin * positive))
    return hinge.square() if squared else hinge


class Contrastive(Loss):
    """Mean over positive pairs plus mean over negative pairs, on Euclidean distances of unit vectors.

    Args:
        margin: Distance from which a negative costs nothing.
        positive_margin: Distance up to which a positive costs nothing.
        squared: False has linear hinges, as in Roth et al. (ICML 2020); True is the original form.
        average: "all" divides each side by the number of its pairs, "active" by the number of those with a cost.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    kind = "pair"
    elementwise = True
    measure = "euclidean"

    def __init__(
        self,
        margin: float = 1.0,
        positive_margin: float = 0.0,
        squared: bool = False,
        average: Literal["all", "active"] = "all",
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_choice("average", average, ("all", "active"))
        self.margin = margin
        self.positive_margin = positive_margin
        self.squared = squared
        self.average = average

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = contrastive(
            pairs.scores,
            pairs.positives,
            pairs.negatives,
            margin=self.margin,
            positive_margin=self.positive_margin,
            squared=self.squared,
        )
        return pairs.per_side(values, values.detach().sign() if self.average == "active" else None)

    def counts(self, relation: RelationSource) -> Tensor | None:
        if self.average == "active":
            return None
        return torch.stack([relation.count_positives().sum(), relation.count_negatives().sum()])
