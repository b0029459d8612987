"""Facility location: the best clustering of a batch must be that of its classes (Oh Song et al., CVPR 2017)."""

import torch
from torch import Tensor, relu

from kinfold.losses.checks import check_positive
from kinfold.losses.facility_search import find_facilities
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import HUGE, count


def facility_location(
    distance: Tensor, positives: Tensor, negatives: Tensor, *, weight: float = 10.0, rounds: int = 5
) -> Tensor:
    """Loss of a batch.

    [max_S (F(S) + weight (1 - NMI(S))) - F*]+
    F(S) = - sum_a min_{r in S} d(a, r)
    F* = - sum over classes c of min_{r in c} sum_{a in c} d(a, r)

    S has as many facilities as there are classes, and NMI(S) compares the classes with the clusters that S makes. The
    maximum is searched for greedily and by swaps, see `find_facilities`. It has no gradient of its own: that of the
    distances from the facilities is the gradient of the maximum.

    Args:
        distance: Distances, (B, R).
        positives, negatives: Boolean masks, (B, R). A pair that is neither is an item with itself.
        weight: Weight of the disagreement between clusters and classes.
        rounds: Rounds of swaps.

    Returns:
        A scalar.

    Examples:
        >>> distance = torch.tensor([[0.0, 4.0, 1.0], [4.0, 0.0, 3.0], [1.0, 3.0, 0.0]])
        >>> same = torch.tensor([[False, True, False], [True, False, False], [False, False, False]])
        >>> facility_location(distance, same, ~same & ~torch.eye(3, dtype=torch.bool), weight=1.0)
        tensor(3.7260)
    """
    is_item = ~(positives | negatives)
    distance = torch.where(is_item, 0.0, distance)
    columns = torch.arange(distance.shape[1], device=distance.device)
    has_class = count(negatives) < distance.shape[1]
    codes = torch.where(has_class, (~negatives).int().argmax(dim=1), -1)  # the first item of its class
    chosen, agreement = find_facilities(distance, codes, is_item, weight, rounds)
    # distances up to 2 beside HUGE: the nearest facility; rows without a class are left out
    nearest = torch.where(chosen, distance, HUGE).min(dim=1).values
    score = weight * (1.0 - agreement) - torch.where(has_class & chosen.any(), nearest, 0.0).sum()
    in_class = (codes == columns[:, None]).to(distance.dtype)  # (R, B): row r has the items of the class r
    blocked = in_class @ negatives.to(distance.dtype) > 0
    costs = torch.where(blocked, HUGE, in_class @ distance).min(dim=1).values
    truth = torch.where(in_class.any(dim=1), costs, 0.0).sum()
    return relu(score + truth)


class FacilityLocation(Loss):
    """Structured prediction: no clustering may score higher than that of the classes, on distances of unit vectors.

    Every batch is clustered: as many facilities as classes, each item with its nearest. The loss is how much the best
    clustering, of which a disagreement with the classes is rewarded, scores above that of the classes. One search of a
    batch costs about O(K B R) for K classes, on the CPU.

    Called "Clustering" in tables. Search, distances and sums are those of the authors' released code. Not stated where
    it could be looked up: the weight. A public implementation started with 10 and multiplied by 0.94 in every 500
    batches; here it is constant.

    Args:
        weight: Weight of 1 - NMI between clusters and classes, the structured margin; "margin multiplier" or gamma.
        rounds: Rounds of swaps after the greedy search; 5 as in the released code, 0 for none.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean" or "sum"; both are the value of the batch.

    Raises:
        ValueError: An option is out of range.

    Examples:
        >>> x, y = torch.eye(6), torch.arange(6) // 2
        >>> FacilityLocation(weight=1.0)(x, y).round(decimals=4)
        tensor(0.5847)
    """

    kind = "batch"
    measure = "euclidean"
    supports_chunks = False

    def __init__(
        self, weight: float = 10.0, rounds: int = 5, distance: Distance | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(weight=weight)
        if rounds < 0:
            raise ValueError(f"rounds must be 0 or more, got {rounds}")
        self.weight = weight
        self.rounds = rounds

    def terms(self, pairs: ScoredPairs) -> Terms:
        value = facility_location(
            pairs.scores, pairs.positives, pairs.negatives, weight=self.weight, rounds=self.rounds
        )
        return Terms.over(value, 1)
