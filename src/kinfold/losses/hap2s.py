"""HAP2S: each anchor against a soft set of hard kin and a soft set of hard others (Yu et al., ECCV 2018)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import lowered


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
    """Loss of every anchor, (B,).

    [margin + sum_p w+_p d_ap - sum_n w-_n d_an]+
    exponential: w+ = softmax(d / sigma), w- = softmax(-d / sigma); polynomial: w+ ~ d^power, w- ~ d^-power

    The weights choose the set and carry no gradient, which makes the exponential form the grouped KL of the DRO
    framework with gamma = sigma.

    >>> kin = torch.tensor([[True, False]])
    >>> hap2s(torch.tensor([[0.9, 0.8]]), kin, ~kin).round(decimals=4)
    tensor([0.3000])
    """
    fixed = distance.detach()
    hardness = fixed / sigma if weighting == "exponential" else power * fixed.clamp(min=1e-6).log()
    farthest = torch.softmax(lowered(hardness, positives), dim=1)
    nearest = torch.softmax(lowered(-hardness, negatives), dim=1)
    return relu(margin + ((farthest - nearest) * distance).sum(dim=1))


class HAP2S(Loss):
    """Mean over anchors, on Euclidean distances of unit vectors.

    `sigma` (0.5 where not given) belongs to exponential weights, `power` (10) to polynomial ones.
    """

    measure = "euclidean"

    def __init__(
        self,
        margin: float = 0.2,
        sigma: float | None = None,
        weighting: Literal["exponential", "polynomial"] = "exponential",
        power: float | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if weighting not in ("exponential", "polynomial"):
            raise ValueError(f"weighting must be 'exponential' or 'polynomial', got {weighting!r}")
        unused, value = ("power", power) if weighting == "exponential" else ("sigma", sigma)
        if value is not None:
            raise ValueError(f"{unused}={value:g} has no meaning to weighting={weighting!r}: leave it out")
        sigma, power = 0.5 if sigma is None else sigma, 10.0 if power is None else power
        positive(sigma=sigma, power=power)
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
