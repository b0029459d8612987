"""Proxy-NCA: each sample near its class vector, against the vectors of all other classes (Movshovitz-Attias, 2017)."""

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits


class ProxyNCA(ProxyLoss):
    """Mean over samples of D_y + log sum_{c != y} exp(-D_c).

    D_c = |scale x - scale p_c|^2 of unit vectors = scale^2 (2 - 2 cos(x, p_c)). The class of the sample is not in the
    sum, so the loss can be negative.

    Proxies need a far larger learning rate than the network (published: 50 times).

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        scale: Length to which samples and proxies are scaled.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none".

    Examples:
        >>> loss = ProxyNCA(num_classes=2, dim=2)
        >>> loss.proxies.data = torch.eye(2)
        >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).round(decimals=4)
        tensor(-18., grad_fn=<RoundBackward1>)
    """

    needs_negatives = True

    def __init__(
        self,
        num_classes: int,
        dim: int,
        scale: float = 3.0,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(scale=scale)
        self.scale = scale
        self.logit_scale = 2.0 * scale**2
        self.proxies = create_proxies(num_classes, dim, init="normal", scale=0.125, generator=generator)

    def values(self, targets: TargetLogits) -> Tensor:
        return targets.mean(targets.negatives - targets.logits)  # the constant of -D cancels
