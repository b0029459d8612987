"""Triplet: every positive nearer than every negative by a margin (Schroff et al., CVPR 2015)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import Quadruplets, Triplets
from kinfold.pairs.measures import root


def all_triplets(
    distance: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.2
) -> tuple[Tensor, Tensor]:
    """Sum over all triplets of each anchor (B,), and how many of them are active (B,).

    sum_p sum_n [d_ap - d_an + margin]+

    The sum is linear in the distances once it is known how many negatives each positive loses to and the reverse. Those
    counts come from sorting the anchor's positives and bucketing its negatives into them, so no triplet is ever listed:
    O(B R log P) time, O(B R) memory, and the gradient is exact.

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
    rows, columns = distance.shape
    # a fixed width is needed while compiling; otherwise that of the anchor with the most positives
    width = columns if torch.compiler.is_compiling() else max(1, int(positives.sum(dim=1).max()))
    reach, order = distance.masked_fill(~positives, -torch.inf).topk(width, dim=1)  # (B, W) descending
    reach = reach + margin
    ascending = reach.flip(dims=(1,)).contiguous()
    # how many positives reach beyond each negative: d_ap + margin > d_an
    beyond = width - torch.searchsorted(ascending, distance, right=True)  # (B, R)
    beyond = torch.where(negatives, beyond, 0)
    # positive of rank r (0 = farthest) is active with every negative that more than r positives reach beyond
    tally = torch.zeros(rows, width + 1, dtype=distance.dtype, device=distance.device)
    tally.scatter_add_(1, beyond, negatives.to(distance.dtype))
    won = tally.flip(dims=(1,)).cumsum(dim=1).flip(dims=(1,))[:, 1:]  # (B, W)
    won = torch.where(reach > -torch.inf, won, 0.0)
    counts = beyond.to(distance.dtype)
    return (-counts).scatter_add(1, order, won), counts.sum(dim=1)


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
        every = pairs.positives.sum(dim=1) * pairs.negatives.sum(dim=1)
        return Terms.over(values, (active if self.average == "active" else every).sum())

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        if isinstance(tuples, Quadruplets):
            return None
        kin, other = scores if self.squared else root(scores)
        values = torch.where(tuples.valid, relu(kin - other + self.margin), 0.0)
        return Terms.over(values, ((values > 0) if self.average == "active" else tuples.valid).sum())
