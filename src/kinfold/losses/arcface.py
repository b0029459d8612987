"""ArcFace: classify by the angle to class vectors, with a margin on the target's angle (Deng et al., CVPR 2019)."""

import math
from typing import Literal

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits
from kinfold.pairs.measures import safe_sqrt
from kinfold.registry import check_choice

# squared distance of unit vectors below which the sine is computed from it: 1 - cos^2 has lost up to 3 of 7 digits
# there
_NEAR = 1e-3


def add_angular_margin(cosine: Tensor, margin: float | Tensor, squared_distance: Tensor | None = None) -> Tensor:
    """cos(theta + margin) from cos(theta), and cos(theta) - margin sin(margin) if theta + margin exceeds pi.

    Uses no arccos, whose slope is infinite at both ends: an embedding that equals its class vector has a finite
    gradient.

    Args:
        cosine: cos(theta), any shape.
        margin: Added angle in radians, in [0, pi); a number, or a tensor that broadcasts to `cosine`.
        squared_distance: Squared distance of the same unit vectors; gives the sine where 1 - cos^2 would lose digits.

    Returns:
        The shape of `cosine`.

    Examples:
        >>> add_angular_margin(torch.tensor([1.0, 0.0]), 0.5).round(decimals=4)
        tensor([ 0.8776, -0.4794])
    """
    angle = torch.as_tensor(margin, dtype=cosine.dtype, device=cosine.device)
    cos, sin = angle.cos(), angle.sin()
    shifted = cosine * cos - measure_sine(cosine, squared_distance) * sin
    return torch.where(cosine > -cos, shifted, cosine - angle * sin)


def get_cosines(targets: TargetLogits, scale: float) -> Tensor:
    """Return cos(theta) of the targets, (B, W), whose logits are scale * cos(theta)."""
    cosine = targets.logits / scale
    return cosine + (cosine.clamp(-1.0, 1.0) - cosine).detach()  # a cosine rounded above one keeps its gradient


def add_margin_to_targets(targets: TargetLogits, margin: float, scale: float) -> Tensor:
    """Return scale * cos(theta + margin) of the targets, (B, W), whose logits are scale * cos(theta)."""
    return scale * add_angular_margin(get_cosines(targets, scale), margin, targets.squared_distances())


def measure_sine(cosine: Tensor, squared_distance: Tensor | None) -> Tensor:
    """sin(theta) from cos(theta); `squared_distance` as in `add_angular_margin`."""
    squared_sine = 1.0 - cosine.square()
    if squared_distance is not None:
        exact = squared_distance * (1.0 - squared_distance / 4)
        # only the value is replaced: as a function of the cosine it has the same derivative
        squared_sine = squared_sine + torch.where(squared_distance < _NEAR, exact - squared_sine, 0.0).detach()
    return safe_sqrt(squared_sine)


class ArcFace(ProxyLoss):
    """Mean cross-entropy of scale * cos(theta_c), where the target class has scale * cos(theta + margin).

    The defaults are those of Roth et al. (ICML 2020); face recognition uses scale 64.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        margin: Angle added to the target, in radians, in [0, pi).
        scale: Factor of the cosines.
        variant: "standard", or "as-coded": all cosines are clamped at zero from below, as in the code of Roth et al.;
            negative ones then have no gradient.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        margin: float = 0.5,
        scale: float = 16.0,
        variant: Literal["standard", "as-coded"] = "standard",
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(scale=scale)
        check_choice("variant", variant, ("standard", "as-coded"))
        if not 0 <= margin < math.pi:
            raise ValueError(f"margin must be in [0, pi) radians, got {margin}")
        self.margin = margin
        self.scale = self.logit_scale = scale
        self.variant = variant
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, dim, init="uniform", scale=limit, generator=generator)

    def logits(self, scores: Tensor) -> Tensor:
        return scores.clamp(min=1e-10 * self.scale) if self.variant == "as-coded" else scores

    def values(self, targets: TargetLogits) -> Tensor:
        return targets.cross_entropy(add_margin_to_targets(targets, self.margin, self.scale))
