"""Triplet loss: every positive nearer than every negative by a margin (Schroff et al., CVPR 2015)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.swapped_triplets import find_farther, list_swapped
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import PairBatch, Quadruplets, Triplets
from kinfold.pairs.distances import Distance
from kinfold.pairs.index_tuples import Tuples
from kinfold.pairs.masks import HUGE, count, exceeds, list_columns, mask_out, mask_to_float
from kinfold.pairs.measures import safe_sqrt
from kinfold.pairs.transforms import is_transformed
from kinfold.registry import check_choice

# positives per anchor up to which one pass for each is faster than sorting
_FEW = 16


def all_triplets(
    distance: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.2
) -> tuple[Tensor, Tensor]:
    """Sum over all triplets of each anchor, and the number of active ones, whose term is positive.

    sum_p sum_n [d_ap - d_an + margin]+

    The sum is linear in the distances once the number of active triplets of each positive and of each negative is
    known. These counts come from one pass per positive if an anchor has few of them, else from sorting the positives
    and bucketing the negatives. No triplet is listed: O(B R log P) time, O(B R) memory, exact gradients.

    Args:
        distance: Distances, (B, R).
        positives, negatives: Boolean masks, (B, R).
        margin: Required gap between the distances of the negative and the positive.

    Returns:
        Sums (B,) and counts (B,).

    Examples:
        >>> distance = torch.tensor([[0.5, 0.6, 2.0]])
        >>> positives = torch.tensor([[True, False, False]])
        >>> all_triplets(distance, positives, ~positives, margin=0.2)[0].round(decimals=4)
        tensor([0.1000])
    """
    with torch.no_grad():
        signed_counts, active = _count_active(distance, positives, negatives, margin)
    return (signed_counts * distance).sum(dim=1) + margin * active, active


def _count_active(distance: Tensor, positives: Tensor, negatives: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Active triplets of each positive, minus those of each negative (B, R); and all of each anchor (B,)."""
    index, exists = list_columns(positives)
    reach = torch.where(exists, distance.gather(1, index) + margin, -HUGE)  # (B, W)
    width = reach.shape[1]
    if width > _FEW and not is_transformed():
        negative_counts, positive_counts = _count_by_sorting(distance, negatives, reach)
    else:
        negative_counts, nearness = torch.zeros_like(distance), mask_out(-distance, negatives)
        sums = []
        for column in range(width):
            active = exceeds(nearness, -reach[:, column, None])
            negative_counts += active
            sums.append(active.sum(dim=1))
        positive_counts = torch.stack(sums, dim=1)
    signed = (-negative_counts).scatter_add(1, index, torch.where(exists, positive_counts, 0.0))
    return signed, negative_counts.sum(dim=1)


def _count_by_sorting(distance: Tensor, negatives: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Active triplets of each negative (B, R), and of each positive (B, W), from d_ap + margin = `reach` (B, W)."""
    width = reach.shape[1]
    ascending, order = reach.sort(dim=1)
    negative_counts = width - torch.searchsorted(ascending, distance, right=True)  # d_ap + margin > d_an
    negative_counts = negative_counts * negatives
    tally = torch.zeros(reach.shape[0], width + 1, dtype=distance.dtype, device=distance.device)
    tally.scatter_add_(1, negative_counts, mask_to_float(negatives, distance))
    # the positive of descending rank r is active with every negative that more than r positives are active with
    positive_counts = tally.flip(dims=(1,)).cumsum(dim=1)[:, :-1]  # in ascending order of `reach`
    return negative_counts.to(distance.dtype), torch.zeros_like(positive_counts).scatter(1, order, positive_counts)


class Triplet(Loss):
    """Mean over all triplets, or over those of a miner.

    Args:
        margin: Required gap between the distances of the negative and the positive.
        squared: True uses squared Euclidean distances of unit vectors, as FaceNet does; False the distances themselves.
        average: "all" divides by the number of triplets, "active" by the number of violated ones.
        swap: Whether d(p, n) replaces d(a, n) where it is smaller (Balntas et al., BMVC 2016). All triplets are listed
            then: O(B P R) memory.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    measure = "squared-euclidean"

    def __init__(
        self,
        margin: float = 0.2,
        squared: bool = True,
        average: Literal["all", "active"] = "all",
        swap: bool = False,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_choice("average", average, ("all", "active"))
        self.margin = margin
        self.squared = squared
        self.average = average
        self.swap = swap

    def select_tuples(self, tuples: Tuples | None, batch: PairBatch) -> Tuples | None:
        return list_swapped(tuples, batch) if self.swap else tuples

    def terms(self, pairs: ScoredPairs) -> Terms:
        distance = pairs.scores if self.squared else safe_sqrt(pairs.scores)
        values, active = all_triplets(distance, pairs.positives, pairs.negatives, margin=self.margin)
        every = count(pairs.positives).long() * count(pairs.negatives)
        return Terms.over(values, active if self.average == "active" else every)

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        sides = find_farther(scores if self.squared else safe_sqrt(scores), self.swap)
        if sides is None:
            return None
        values = torch.where(tuples.valid, relu(sides[0] - sides[1] + self.margin), 0.0)
        return Terms.over(values, values > 0 if self.average == "active" else tuples.valid)
