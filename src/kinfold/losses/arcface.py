"""ArcFace: classify by the angle to class vectors, with a margin added to the target's (Deng et al., CVPR 2019)."""

import math

import torch
from torch import Tensor

from kinfold.losses.cross_entropy import Targets
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.proxies import new_proxies
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.gathered import gathered_squared_euclidean
from kinfold.pairs.measures import root

# squared distance of unit vectors below which the sine is taken from it: 1 - cos^2 has lost up to 3 of 7 digits there
_NEAR = 1e-3


def add_angle(cosine: Tensor, margin: float, squared_distance: Tensor | None = None) -> Tensor:
    """cos(theta + margin) from cos(theta), and cos(theta) - margin sin(margin) where theta + margin exceeds pi.

    Without arccos, whose slope is infinite at both ends: an embedding that equals its class vector has a gradient here.
    `squared_distance` of the same two unit vectors gives the sine where 1 - cos^2 would cancel.

    >>> add_angle(torch.tensor([1.0, 0.0]), 0.5).round(decimals=4)
    tensor([ 0.8776, -0.4794])
    """
    squared_sine = 1.0 - cosine.square()
    if squared_distance is not None:
        exact = squared_distance * (1.0 - squared_distance / 4)
        # only the value is replaced: as a function of the cosine it has the same derivative
        squared_sine = squared_sine + torch.where(squared_distance < _NEAR, exact - squared_sine, 0.0).detach()
    sine = root(squared_sine)
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
        own = targets.logits / self.scale
        own = own + (own.clamp(-1.0, 1.0) - own).detach()  # a cosine rounded to more than one keeps its gradient
        distance = None
        if pairs.anchors is not None and pairs.references is not None:
            distance = _squared_distance(pairs.anchors.detach(), pairs.references.detach(), targets.index)
        return pairs.per_sample(targets.cross_entropy(self.scale * add_angle(own, self.margin, distance)))


def _squared_distance(x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    """Return the squared distance of each row of x (B, d) to the rows of y that `index` (B, W) names, (B, W)."""
    rows = torch.arange(index.shape[0], device=index.device)[:, None].expand_as(index)
    return gathered_squared_euclidean(x, y, rows.reshape(-1), index.reshape(-1)).reshape(index.shape)
