"""AdaFace: a margin that follows the quality of each image, measured by its length (Kim et al., CVPR 2022)."""

import math

import torch
from torch import Tensor

from kinfold.losses.arcface import get_cosines, measure_sine
from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits

# lengths outside of this range count as its ends, as in the authors' code
_LOW, _HIGH = 1e-3, 100.0


def rate_lengths(lengths: Tensor, is_used: Tensor, concentration: float) -> Tensor:
    """Return the quality of each sample in [-1, 1]: concentration (|x| - mean) / deviation, clipped; no gradient.

    Mean and deviation are those of the used samples of the batch. (The authors' code also keeps a moving average, with
    the weight zero by default.)

    Args:
        lengths: Lengths of the embeddings, (B, 1).
        is_used: Which samples have a class, (B, 1).
        concentration: Factor; 0.333 puts two thirds of the samples between -1/3 and 1/3.

    Examples:
        >>> rate_lengths(torch.tensor([[1.0], [3.0]]), torch.ones(2, 1), 0.5).round(decimals=3).flatten()
        tensor([-0.5000,  0.5000])
    """
    safe = lengths.detach().clamp(_LOW, _HIGH)
    count = is_used.sum().clamp(min=1)
    offset = safe - (safe * is_used).sum() / count
    deviation = ((offset * is_used).square().sum() / count).sqrt()
    return (concentration * offset / (deviation + 1e-3)).clamp(-1.0, 1.0)


def shift_angle(cosine: Tensor, angle: Tensor, squared_distance: Tensor | None = None) -> Tensor:
    """cos(theta + angle) from cos(theta), where theta + angle is clipped to [0, pi]; the angle may be negative.

    Args:
        cosine: cos(theta), any shape.
        angle: Added angle in radians, in (-pi, pi); broadcasts to `cosine`.
        squared_distance: As in `add_angular_margin`.

    Examples:
        >>> shift_angle(torch.tensor([1.0, 0.0]), torch.tensor(-0.5)).round(decimals=4)
        tensor([1.0000, 0.4794])
    """
    cos, sin = angle.cos(), angle.sin()
    shifted = cosine * cos - measure_sine(cosine, squared_distance) * sin
    below, above = (angle < 0) & (cosine > cos), (angle > 0) & (cosine < -cos)
    return shifted.masked_fill(below, 1.0).masked_fill(above, -1.0)


class AdaFace(ProxyLoss):
    """Mean cross-entropy of scale * cos(theta_c) with a margin by the quality z of each sample, see `rate_lengths`.

    The target class has scale * (cos(theta - margin z) - margin (1 + z)). Samples of high quality have a margin on the
    cosine, which stresses hard samples; those of low quality have one on the angle, which does not.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        margin: Size of both margins.
        concentration: How strongly the margin follows the length; h in the paper.
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
        margin: float = 0.4,
        concentration: float = 0.333,
        scale: float = 64.0,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(scale=scale, concentration=concentration)
        if not 0 <= margin < math.pi / 2:
            raise ValueError(f"margin must be in [0, pi / 2), got {margin}")
        self.margin = margin
        self.concentration = concentration
        self.scale = self.logit_scale = scale
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, dim, init="uniform", scale=limit, generator=generator)

    def values(self, targets: TargetLogits) -> Tensor:
        is_used = targets.classes.exists.any(dim=1, keepdim=True)
        quality = rate_lengths(targets.get_lengths(), is_used, self.concentration)
        shifted = shift_angle(get_cosines(targets, self.scale), -self.margin * quality, targets.squared_distances())
        return targets.cross_entropy(self.scale * (shifted - self.margin * (1.0 + quality)))
