"""ROADMAP: an upper bound of one minus average precision, and a calibration of cosines (Ramzi et al., NeurIPS 2021)."""

import torch
from torch import Tensor, relu

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import count, list_columns, mask_to_float, masked_sum


def rising_step(gap: Tensor, *, temperature: float = 0.01, slope: float = 100.0, reach: float = 0.05) -> Tensor:
    """A step whose upper side does not saturate, so that negatives far above a positive keep their gradient.

    gap <= 0: sigmoid(gap / temperature)        0 < gap <= reach: 1/2 + sigmoid(gap / temperature)
    gap > reach: slope (gap - reach) + 1/2 + sigmoid(reach / temperature)

    Args:
        gap: Similarity of the negative less that of the positive, any shape.
        temperature: Width of the sigmoid.
        slope: Slope beyond `reach`.
        reach: Gap from which the step is linear.

    Returns:
        The shape of `gap`.

    Examples:
        >>> rising_step(torch.tensor([-1.0, 0.0, 0.15])).round(decimals=4)
        tensor([ 0.0000,  0.5000, 11.4933])
    """
    smooth = torch.sigmoid(gap.clamp(max=reach) / temperature)
    return smooth + 0.5 * (gap > 0) + slope * relu(gap - reach)


def sup_ap(similarity: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float = 0.01) -> Tensor:
    """Loss of every anchor, at least one minus its average precision; O(B P R) for P positives per anchor.

    1 - mean_p r_p / (r_p + sum_n H(s_n - s_p)),   r_p = 1 + the number of other positives with s >= s_p

    H is `rising_step`; r_p is counted exactly and has no gradient.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        temperature: Width of the sigmoid of `rising_step`.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> sup_ap(torch.tensor([[0.9, 0.1]]), positives, ~positives)
        tensor([0.])
    """
    index, exists = list_columns(positives)
    positive = similarity.gather(1, index)  # (B, W)
    rank = ((positive[:, None, :] >= positive[:, :, None]) & exists[:, None, :]).sum(dim=2)  # the item itself too
    gap = similarity[:, None, :] - positive[:, :, None]  # (B, W, R)
    above = (rising_step(gap, temperature=temperature) * mask_to_float(negatives, gap)[:, None, :]).sum(dim=2)
    precision = torch.where(exists, rank / (rank + above).clamp(min=1e-12), 0.0)
    number = exists.sum(dim=1)
    return torch.where(number > 0, 1.0 - precision.sum(dim=1) / number.clamp(min=1), 0.0)


class Roadmap(Loss):
    """Mean over anchors of (1 - weight) * `sup_ap` + weight * calibration.

    calibration = mean_p [positive_threshold - s_p]+ + mean_n [s_n - negative_threshold]+

    Args:
        temperature: Width of the sigmoid of ranks; 0.01 as in the paper.
        weight: Share of the calibration; 0.5 as in the paper.
        positive_threshold: Cosine from which a positive costs nothing; 0.9 as in the paper.
        negative_threshold: Cosine up to which a negative costs nothing; 0.6 as in the paper.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        temperature: float = 0.01,
        weight: float = 0.5,
        positive_threshold: float = 0.9,
        negative_threshold: float = 0.6,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(temperature=temperature)
        self.temperature = temperature
        self.weight = weight
        self.positive_threshold = positive_threshold
        self.negative_threshold = negative_threshold

    def terms(self, pairs: ScoredPairs) -> Terms:
        positives, negatives, scores = pairs.positives, pairs.negatives, pairs.scores
        ranking = sup_ap(scores, positives, negatives, temperature=self.temperature)
        pull = masked_sum(relu(self.positive_threshold - scores), positives) / count(positives).clamp(min=1)
        push = masked_sum(relu(scores - self.negative_threshold), negatives) / count(negatives).clamp(min=1)
        return pairs.per_anchor((1.0 - self.weight) * ranking + self.weight * (pull + push))
