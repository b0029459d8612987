"""Ranked list: kin inside one radius, others outside a larger one, hard others first (Wang et al., CVPR 2019)."""

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import LOWEST, number


def ranked_list(
    distance: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    margin: float = 0.4,
    boundary: float = 1.2,
    temperature: float = 10.0,
    balance: float = 0.5,
) -> Tensor:
    """Loss of every anchor, (B,).

    (1 - balance) mean over positives with d > boundary - margin of [d - (boundary - margin)]
    + balance sum_n w_n [boundary - d] / sum_n w_n over negatives with d < boundary, w = exp(temperature (boundary - d))

    >>> kin = torch.tensor([[True, True, False]])
    >>> ranked_list(torch.tensor([[1.0, 0.1, 1.0]]), kin, ~kin).round(decimals=4)
    tensor([0.2000])
    """
    outside = relu(distance - (boundary - margin)) * number(positives, distance)
    pull = outside.sum(dim=1) / outside.detach().sign().sum(dim=1).clamp(min=1)
    inside = relu(boundary - distance)
    counted = number(negatives, distance) * inside.detach().sign()
    weights = torch.softmax(temperature * inside + (counted - 1.0) * LOWEST, dim=1)
    push = (counted * weights * inside).sum(dim=1)
    return (1 - balance) * pull + balance * push


class RankedList(Loss):
    """Mean over anchors, on Euclidean distances of unit vectors.

    Defaults are the paper's for Stanford Online Products: boundary 1.2, margin 0.4, temperature 10, both sides in
    balance. The weights of the negatives are differentiated too.
    """

    measure = "euclidean"

    def __init__(
        self,
        margin: float = 0.4,
        boundary: float = 1.2,
        temperature: float = 10.0,
        balance: float = 0.5,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if not 0 <= balance <= 1:
            raise ValueError(f"balance must be in [0, 1], got {balance}")
        self.margin = margin
        self.boundary = boundary
        self.temperature = temperature
        self.balance = balance

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = ranked_list(
            pairs.scores,
            pairs.positives,
            pairs.negatives,
            margin=self.margin,
            boundary=self.boundary,
            temperature=self.temperature,
            balance=self.balance,
        )
        return pairs.per_anchor(values)
