"""SphereFace: classify by the angle to class vectors, multiplied for the target (Liu et al., CVPR 2017)."""

import math

import torch
from torch import Tensor

from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits


def multiply_angle(cosine: Tensor, margin: int) -> Tensor:
    """Return psi(theta) = (-1)^k cos(margin theta) - 2 k for theta in [k pi / margin, (k + 1) pi / margin].

    It falls from 1 at theta = 0 to 1 - 2 margin at theta = pi. cos(margin theta) is a polynomial of the cosine: its
    gradient needs no arccos, whose slope is infinite at both ends.

    Args:
        cosine: cos(theta), any shape.
        margin: Factor of the angle, at least 1.

    Examples:
        >>> multiply_angle(torch.tensor([1.0, 0.0, -1.0]), 2)
        tensor([ 1., -1., -3.])
    """
    before, chebyshev = torch.ones_like(cosine), cosine
    for _ in range(margin - 1):
        before, chebyshev = chebyshev, 2.0 * cosine * chebyshev - before
    theta = cosine.detach().clamp(-1.0, 1.0).acos()
    k = (theta * (margin / math.pi)).floor().clamp(max=margin - 1)
    return (1.0 - 2.0 * (k % 2)) * chebyshev - 2.0 * k


class SphereFace(ProxyLoss):
    """Mean cross-entropy of |x| cos(theta_c), with a multiplied angle for the target, see `multiply_angle`.

    The target class has |x| (psi(theta) + blend cos(theta)) / (1 + blend).
    Class vectors are normalized, embeddings are not: their length is the scale of the logits.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        margin: Factor of the angle of the target, an integer of at least 1; the paper has 4.
        blend: Share of the plain cosine in the target. The authors lower it from 1000 to 5 in training, without which a
            network with random weights hardly learns; 0 is the formula of the paper.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none".
    """

    uses_lengths = True
    scales_by_length = True

    def __init__(
        self,
        num_classes: int,
        dim: int,
        margin: int = 4,
        blend: float = 5.0,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        if margin != int(margin) or margin < 1:
            raise ValueError(f"margin must be an integer of at least 1, got {margin}")
        if not (blend >= 0 and math.isfinite(blend)):
            raise ValueError(f"blend must be a number of at least 0, got {blend}")
        self.margin = int(margin)
        self.blend = blend
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, dim, init="uniform", scale=limit, generator=generator)

    def values(self, targets: TargetLogits) -> Tensor:
        lengths = targets.get_lengths()
        cosine = targets.logits / lengths.masked_fill(lengths <= 0, 1.0)
        target = (multiply_angle(cosine, self.margin) + self.blend * cosine) / (1.0 + self.blend)
        return targets.cross_entropy(lengths * target)

    @property
    def has_pair_weights(self) -> bool:
        return False  # depends on lengths too
