"""Triplet loss with a global loss: distances of positives and of negatives vary little and have different means."""

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.triplet import all_triplets
from kinfold.pairs import Quadruplets, Triplets
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import count, mask_to_float


def global_loss(
    distance: Tensor, positives: Tensor, negatives: Tensor, *, global_margin: float = 0.4, mean_weight: float = 0.8
) -> Tensor:
    """Loss of all pairs together (Kumar et al., CVPR 2016).

    var+ + var- + mean_weight [mean+ - mean- + global_margin]+

    Args:
        distance: Distances of any shape; the paper has squared distances of unit vectors, divided by 4.
        positives, negatives: Boolean masks of the same shape.
        global_margin: Required gap between the mean distances of negatives and positives.
        mean_weight: Weight of that gap.

    Returns:
        A scalar; zero without positives or without negatives.

    Examples:
        >>> distance, positives = torch.tensor([0.2, 0.4, 0.5, 0.9]), torch.tensor([True, True, False, False])
        >>> global_loss(distance, positives, ~positives, global_margin=0.5, mean_weight=1.0)
        tensor(0.1500)
    """
    means, variances = [], []
    for mask in (positives, negatives):
        share = mask_to_float(mask, distance) / mask.sum().clamp(min=1)
        mean = (share * distance).sum()
        means.append(mean)
        variances.append((share * (distance - mean).square()).sum())
    value = variances[0] + variances[1] + mean_weight * relu(means[0] - means[1] + global_margin)
    return torch.where(positives.any() & negatives.any(), value, 0.0)


class GlobalTriplet(Loss):
    """Mean over triplets plus a global loss of their distances, on unit vectors.

    mean [D(a, p) - D(a, n) + margin]+ + global_weight (var+ + var- + mean_weight [mean+ - mean- + global_margin]+)

    D is the squared distance divided by 4, between 0 and 1. The objective of Smart Mining (Harwood et al., ICCV 2017),
    whose triplets come from the sampler and the miner `smart-mining` and `sampled-triplets`. Without tuples all
    triplets and all pairs of the batch count. Papers: Kumar et al., CVPR 2016, for the global loss. The numbers of the
    paper could not be looked up: the defaults are ours.

    Args:
        margin: Required gap between the distances of the negative and the positive of a triplet.
        global_weight: Weight of the global loss; 0 leaves a triplet loss.
        global_margin: Required gap between the mean distances of all negatives and of all positives.
        mean_weight: Weight of that gap beside the variances.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean" or "sum"; both are the value of the batch.

    Raises:
        ValueError: A weight is negative.

    Examples:
        >>> x, y = torch.eye(4), torch.arange(4) // 2
        >>> GlobalTriplet()(x, y).round(decimals=4)  # all distances are equal
        tensor(0.3700)
    """

    kind = "batch"
    measure = "squared-euclidean"
    supports_chunks = False

    def __init__(
        self,
        margin: float = 0.05,
        global_weight: float = 1.0,
        global_margin: float = 0.4,
        mean_weight: float = 0.8,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        for name, weight in (("global_weight", global_weight), ("mean_weight", mean_weight)):
            if not 0 <= weight < float("inf"):
                raise ValueError(f"{name} must be a number of at least 0, got {weight}")
        self.margin = margin
        self.global_weight = global_weight
        self.global_margin = global_margin
        self.mean_weight = mean_weight

    def terms(self, pairs: ScoredPairs) -> Terms:
        distance = pairs.scores / 4.0
        sums, _ = all_triplets(distance, pairs.positives, pairs.negatives, margin=self.margin)
        total = (count(pairs.positives).long() * count(pairs.negatives)).sum()
        return self._add_global_loss(sums.sum() / total.clamp(min=1), distance, pairs.positives, pairs.negatives)

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        if isinstance(tuples, Quadruplets):
            return None
        distance, nothing = scores / 4.0, torch.zeros_like(tuples.valid)
        hinges = torch.where(tuples.valid, relu(distance[0] - distance[1] + self.margin), 0.0)
        positives, negatives = torch.stack([tuples.valid, nothing]), torch.stack([nothing, tuples.valid])
        return self._add_global_loss(hinges.sum() / tuples.valid.sum().clamp(min=1), distance, positives, negatives)

    def _add_global_loss(self, triplets: Tensor, distance: Tensor, positives: Tensor, negatives: Tensor) -> Terms:
        whole = global_loss(
            distance, positives, negatives, global_margin=self.global_margin, mean_weight=self.mean_weight
        )
        return Terms.over(triplets + self.global_weight * whole, 1)
