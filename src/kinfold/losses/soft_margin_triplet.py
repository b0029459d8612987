"""Soft-margin triplet loss: a smooth hinge without a margin on every triplet (Hermans et al., 2017)."""

import torch
from torch import Tensor

from kinfold.losses.logsumexp import softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.swapped_triplets import find_farther, list_swapped
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import PairBatch, Quadruplets, Triplets
from kinfold.pairs.distances import Distance
from kinfold.pairs.index_tuples import Tuples
from kinfold.pairs.masks import count, list_columns, mask_to_float
from kinfold.pairs.measures import safe_sqrt
from kinfold.pairs.row_function import RowResult, compute_rows

# Factors of a product that cannot overflow: each is at most 1 + e^4, and their logarithm costs more than they do.
_FACTORS = 16


def soft_margin_triplets(distance: Tensor, positives: Tensor, negatives: Tensor, *, on_sphere: bool = False) -> Tensor:
    """Sum over all triplets of each anchor, in one pass for each positive; O(B P R) for P positives per anchor.

    sum_p sum_n log(1 + exp(d_ap - d_an)) = sum_n log prod_p (1 + exp(d_ap) exp(-d_an))

    Args:
        distance: Distances, (B, R).
        positives, negatives: Boolean masks, (B, R).
        on_sphere: Whether they are distances of unit vectors or their squares, at most 4. Products, which could
            overflow otherwise, are faster than sums of logarithms.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False, False]])
        >>> soft_margin_triplets(torch.tensor([[0.5, 0.5, 9.5]]), positives, ~positives).round(decimals=4)
        tensor([0.6933])
    """
    if not on_sphere:
        return _add(distance, positives, negatives)
    return compute_rows(distance, lambda d: _multiply(d, positives, negatives), lambda d: _add(d, positives, negatives))


def _add(distance: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Sums of logarithms."""
    index, exists = list_columns(positives)
    is_negative, total = mask_to_float(negatives, distance), torch.zeros_like(distance[:, 0])
    for column, is_positive in zip(distance.gather(1, index).unbind(dim=1), exists.unbind(dim=1), strict=True):
        values = torch.linalg.vecdot(softplus(column[:, None] - distance), is_negative)
        total = total + torch.where(is_positive, values, 0.0)
    return total


def _multiply(distance: Tensor, positives: Tensor, negatives: Tensor) -> RowResult:
    """Logarithms of products, with derivatives: that of a triplet is x / (1 + x) with x = exp(d_ap) exp(-d_an)."""
    index, exists = list_columns(positives)
    far = distance.gather(1, index).exp() * exists  # (B, W), zero where there is no positive
    near = distance.neg().exp_().mul_(mask_to_float(negatives, distance))  # (B, R)
    total, slopes, pulls = torch.zeros_like(distance[:, 0]), torch.zeros_like(distance), []
    for factors in torch.split(far, _FACTORS, dim=1):
        product = torch.ones_like(distance)
        for factor in factors.unbind(dim=1):
            share = near * factor[:, None]
            above = share + 1.0
            product *= above
            pulls.append(share.div_(above).sum(dim=1))
            slopes -= share
        total += product.log_().sum(dim=1)
    return RowResult(total, slopes.scatter_add_(1, index, torch.stack(pulls, dim=1)))


class SoftMarginTriplet(Loss):
    """Mean over all triplets, or over those of a miner.

    Args:
        squared: True uses squared Euclidean distances of unit vectors; False the distances themselves, as the paper.
        swap: Whether the distance of the positive and the negative replaces that of the anchor and the negative where
            it is smaller (Balntas et al., BMVC 2016). All triplets are listed then: O(B P R) memory.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    measure = "squared-euclidean"

    def __init__(
        self, squared: bool = False, swap: bool = False, distance: Distance | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction, distance)
        self.squared = squared
        self.swap = swap

    def select_tuples(self, tuples: Tuples | None, batch: PairBatch) -> Tuples | None:
        return list_swapped(tuples, batch) if self.swap else tuples

    def terms(self, pairs: ScoredPairs) -> Terms:
        distance = pairs.scores if self.squared else safe_sqrt(pairs.scores)
        on_sphere = self.scoring.similarity_slope is not None
        values = soft_margin_triplets(distance, pairs.positives, pairs.negatives, on_sphere=on_sphere)
        return Terms.over(values, count(pairs.positives).long() * count(pairs.negatives))

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        sides = find_farther(scores if self.squared else safe_sqrt(scores), self.swap)
        if sides is None:
            return None
        values = torch.where(tuples.valid, softplus(sides[0] - sides[1]), 0.0)
        return Terms.over(values, tuples.valid)
