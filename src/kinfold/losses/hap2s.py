"""HAP2S: each anchor against a soft set of hard positives and a soft set of hard negatives (Yu et al., ECCV 2018)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import gather_few, mask_out
from kinfold.registry import check_choice


def hap2s(
    distance: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    margin: float = 0.2,
    sigma: float = 0.5,
    weighting: Literal["exponential", "polynomial"] = "exponential",
    power: float = 10.0,
) -> Tensor:
    """Loss of every anchor.

    [margin + sum_p w+_p d_ap - sum_n w-_n d_an]+
    exponential: w+ = softmax(d / sigma), w- = softmax(-d / sigma); polynomial: w+ ~ d^power, w- ~ d^-power

    The weights carry no gradient. The exponential form is therefore the grouped KL of the DRO framework with
    gamma = sigma.

    Args:
        distance: Distances, (B, R).
        positives, negatives: Boolean masks, (B, R).
        margin: Required gap between the two weighted distances.
        sigma: Temperature of exponential weights.
        weighting: "exponential" or "polynomial".
        power: Exponent of polynomial weights.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> hap2s(torch.tensor([[0.9, 0.8]]), positives, ~positives).round(decimals=4)
        tensor([0.3000])
    """
    positive_distance, exists = gather_few(distance, positives)

    def weigh(distance: Tensor, mask: Tensor, sign: float) -> Tensor:
        exponential = weighting == "exponential"
        hardness = distance * (sign / sigma) if exponential else sign * power * distance.clamp(min=1e-6).log()
        return torch.softmax(mask_out(hardness, mask), dim=1)

    positive_weights = weigh(positive_distance.detach(), exists, 1.0)
    negative_weights = weigh(distance.detach(), negatives, -1.0)
    farthest = torch.linalg.vecdot(positive_weights, positive_distance)
    return relu(margin + farthest - torch.linalg.vecdot(negative_weights, distance))


class HAP2S(Loss):
    """Mean over anchors, on Euclidean distances of unit vectors.

    Args:
        margin: Required gap between the weighted distances of positives and negatives.
        sigma: Temperature of exponential weights, by default 0.5; not allowed with polynomial weights.
        weighting: "exponential" or "polynomial".
        power: Exponent of polynomial weights, by default 10; not allowed with exponential weights.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    measure = "euclidean"

    def __init__(
        self,
        margin: float = 0.2,
        sigma: float | None = None,
        weighting: Literal["exponential", "polynomial"] = "exponential",
        power: float | None = None,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_choice("weighting", weighting, ("exponential", "polynomial"))
        unused, value = ("power", power) if weighting == "exponential" else ("sigma", sigma)
        if value is not None:
            raise ValueError(f"{unused}={value:g} has no effect with weighting={weighting!r}: leave it out")
        sigma, power = 0.5 if sigma is None else sigma, 10.0 if power is None else power
        check_positive(sigma=sigma, power=power)
        self.margin = margin
        self.sigma = sigma
        self.weighting = weighting
        self.power = power

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = hap2s(
            pairs.scores,
            pairs.positives,
            pairs.negatives,
            margin=self.margin,
            sigma=self.sigma,
            weighting=self.weighting,
            power=self.power,
        )
        return pairs.per_anchor(values)
