"""MagFace: an angular margin that grows with the length of the embedding (Meng et al., CVPR 2021)."""

import math

import torch
from torch import Tensor

from kinfold.losses.arcface import add_angular_margin, get_cosines
from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits
from kinfold.pairs.measures import measure_lengths


class MagFace(ProxyLoss):
    """Mean cross-entropy of scale * cos(theta_c), the target with a margin by its length, plus a term of lengths.

    target: scale * cos(theta + m(a))
    a = |x|, clipped to [low, high]
    m(a) = low_margin + (high_margin - low_margin) (a - low) / (high - low)
    L = mean over samples of the cross-entropy + regularization * (a / high^2 + 1 / a)

    The second term rewards length, the margin lets only samples that are easy to classify become long: length measures
    quality. Embeddings must start with lengths between `low` and `high`; outside, the length has no gradient.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        low: Length of the smallest margin.
        high: Length of the largest margin.
        low_margin: Smallest angle added to the target, in radians.
        high_margin: Largest angle added to the target, in radians.
        regularization: Weight of the term of lengths; the authors have 20 and 35.
        scale: Factor of the cosines.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none".
    """

    uses_lengths = True

    def __init__(
        self,
        num_classes: int,
        dim: int,
        low: float = 10.0,
        high: float = 110.0,
        low_margin: float = 0.45,
        high_margin: float = 0.8,
        regularization: float = 20.0,
        scale: float = 64.0,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(scale=scale, low=low)
        if not low < high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        if not 0 <= low_margin <= high_margin < math.pi:
            raise ValueError(
                f"margins must be angles 0 <= low_margin <= high_margin < pi, got {low_margin} and {high_margin}"
            )
        self.low = low
        self.high = high
        self.low_margin = low_margin
        self.high_margin = high_margin
        self.regularization = regularization
        self.scale = self.logit_scale = scale
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, dim, init="uniform", scale=limit, generator=generator)

    def values(self, targets: TargetLogits) -> Tensor:
        length = targets.get_lengths().clamp(self.low, self.high)
        slope = (self.high_margin - self.low_margin) / (self.high - self.low)
        margin = self.low_margin + slope * (length - self.low)
        shifted = add_angular_margin(get_cosines(targets, self.scale), margin, targets.squared_distances())
        return targets.cross_entropy(self.scale * shifted)

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        if self.regularization == 0:
            return None
        length = measure_lengths(embeddings).clamp(self.low, self.high)
        return self.regularization * (length / self.high**2 + 1.0 / length)

    @property
    def has_pair_weights(self) -> bool:
        return False  # depends on lengths too
