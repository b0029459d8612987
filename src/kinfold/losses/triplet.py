"""Triplet: every positive nearer than every negative by a margin (Schroff et al., CVPR 2015)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import Quadruplets, Triplets
from kinfold.pairs.masks import LOWEST, columns, count, number
from kinfold.pairs.measures import root
from kinfold.pairs.transforms import is_transformed

# positives per anchor up to which one pass for each is faster than sorting
_FEW = 16


def all_triplets(
    distance: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.2
) -> tuple[Tensor, Tensor]:
    """Sum over all triplets of each anchor (B,), and how many of them are active (B,).

    sum_p sum_n [d_ap - d_an + margin]+

    The sum is linear in the distances once it is known how many negatives each positive loses to and the reverse. Those
    counts come from one pass for each of the few positives of an anchor, or from sorting them and bucketing the
    negatives where they are many, so no triplet is ever listed: O(B R log P) time, O(B R) memory, exact gradients.

    >>> d = torch.tensor([[0.0, 0.5, 0.6, 2.0]])
    >>> kin, other = torch.tensor([[False, True, False, False]]), torch.tensor([[False, False, True, True]])
    >>> all_triplets(d, kin, other, margin=0.2)[0].round(decimals=4)
    tensor([0.1000])
    """
    with torch.no_grad():
        signs, active = _net_counts(distance, positives, negatives, margin)
    return (signs * distance).sum(dim=1) + margin * active, active


def _net_counts(distance: Tensor, positives: Tensor, negatives: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """(B, R) number of active triplets of each positive, minus that of each negative; and all per anchor."""
    index, exists = columns(positives)
    reach = torch.where(exists, distance.gather(1, index) + margin, -LOWEST)  # (B, W)
    width = reach.shape[1]
    if width > _FEW and not is_transformed():
        beyond, won = _by_sorting(distance, negatives, reach)
    else:
        beyond, other = torch.zeros_like(distance), number(negatives, distance)
        each = []
        for place in range(width):
            active = (reach[:, place, None] - distance).sign_().relu_().mul_(other)
            beyond += active
            each.append(active.sum(dim=1))
        won = torch.stack(each, dim=1)
    return (-beyond).scatter_add(1, index, torch.where(exists, won, 0.0)), beyond.sum(dim=1)


def _by_sorting(distance: Tensor, negatives: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """How many positives reach beyond each negative, (B, R), and how many negatives each reaches beyond, (B, W)."""
    width = reach.shape[1]
    ascending, order = reach.sort(dim=1)
    beyond = width - torch.searchsorted(ascending, distance, right=True)  # d_ap + margin > d_an
    beyond = beyond * negatives
    tally = torch.zeros(reach.shape[0], width + 1, dtype=distance.dtype, device=distance.device)
    tally.scatter_add_(1, beyond, number(negatives, distance))
    # the positive of descending rank r is active with every negative that more than r positives reach beyond
    won = tally.flip(dims=(1,)).cumsum(dim=1)[:, :-1]  # ascending order: the farthest positive last
    return beyond.to(distance.dtype), torch.zeros_like(won).scatter(1, order, won)


class Triplet(Loss):
    """Mean over all triplets, or over those of a miner; `average="active"` divides by the violated ones only.

    Squared Euclidean distances of unit vectors, as in FaceNet; `squared=False` takes the distances themselves.
    """

    measure = "squared-euclidean"

    def __init__(
        self,
        margin: float = 0.2,
        squared: bool = True,
        average: Literal["all", "active"] = "all",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if average not in ("all", "active"):
            raise ValueError(f"average must be 'all' or 'active', got {average!r}")
        self.margin = margin
        self.squared = squared
        self.average = average

    def terms(self, pairs: ScoredPairs) -> Terms:
        distance = pairs.scores if self.squared else root(pairs.scores)
        values, active = all_triplets(distance, pairs.positives, pairs.negatives, margin=self.margin)
        every = count(pairs.positives).long() * count(pairs.negatives)
        return Terms.over(values, (active if self.average == "active" else every).sum())

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        if isinstance(tuples, Quadruplets):
            return None
        kin, other = scores if self.squared else root(scores)
        values = torch.where(tuples.valid, relu(kin - other + self.margin), 0.0)
        return Terms.over(values, ((values > 0) if self.average == "active" else tuples.valid).sum())
