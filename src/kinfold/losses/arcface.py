"""ArcFace: classify by the angle to class vectors, with a margin added to the target's (Deng et al., CVPR 2019)."""

import math

import torch
from torch import Tensor

from kinfold.losses.cross_entropy import Targets
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.proxies import new_proxies
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.measures import root


def add_angle(cosine: Tensor, margin: float) -> Tensor:
    """cos(theta + margin) from cos(theta), and cos(theta) - margin sin(margin) where theta + margin exceeds pi.

    Without arccos, whose slope is infinite at both ends: an embedding that equals its class vector has a gradient here.

    >>> add_angle(torch.tensor([1.0, 0.0]), 0.5).round(decimals=4)
    tensor([ 0.8776, -0.4794])
    """
    sine = root(1.0 - cosine.square())
    shifted = cosine * math.cos(margin) - sine * math.sin(margin)
    return torch.where(cosine > -math.cos(margin), shifted, cosine - margin * math.sin(margin))


class ArcFace(Loss):
    """Mean cross-entropy of scale * cos(theta_c), where the target has scale * cos(theta + margin); margin in radians.

    scale 16 and margin 0.5 are the settings of Roth et al. (ICML 2020); faces are trained with 64.
    `variant="as-coded"` clamps all cosines at zero from below, as their code does: negative ones get no gradient.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        margin: float = 0.5,
        scale: float = 16.0,
        variant: str = "standard",
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        positive(scale=scale)
        if not 0 <= margin < math.pi:
            raise ValueError(f"margin must be in [0, pi) radians, got {margin}")
        if variant not in ("standard", "as-coded"):
            raise ValueError(f"variant must be 'standard' or 'as-coded', got {variant!r}")
        self.margin = margin
        self.scale = scale
        self.variant = variant
        spread = 1.0 / math.sqrt(max(1, dim))
        self.proxies = new_proxies(num_classes, dim, init="uniform", scale=spread, generator=generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        cosine = pairs.scores.clamp(min=1e-10) if self.variant == "as-coded" else pairs.scores
        targets = Targets(self.scale * cosine, pairs.positives, pairs.labels)
        own = (targets.logits / self.scale).clamp(-1.0, 1.0)
        return pairs.per_sample(targets.cross_entropy(self.scale * add_angle(own, self.margin)))
