"""CosFace: classify by the cosine to class vectors, with a margin on the target (Wang et al., CVPR 2018)."""

import math

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits


class CosFace(ProxyLoss):
    """Mean cross-entropy of scale * cos(x, p_c), where the target class has scale * (cos - margin).

    The defaults are the paper's for faces, which the DRML tables also use.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        margin: Subtracted from the cosine of the target.
        scale: Factor of the cosines.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none".

    Examples:
        >>> loss = CosFace(num_classes=2, dim=2, margin=0.5, scale=2.0)
        >>> loss.proxies.data = torch.eye(2)
        >>> loss(torch.tensor([[1.0, 1.0]]), torch.tensor([0])).round(decimals=4)
        tensor(1.3133, grad_fn=<RoundBackward1>)
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        margin: float = 0.35,
        scale: float = 64.0,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(scale=scale)
        self.margin = margin
        self.scale = self.logit_scale = scale
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, dim, init="uniform", scale=limit, generator=generator)

    def values(self, targets: TargetLogits) -> Tensor:
        return targets.cross_entropy(targets.logits - self.scale * self.margin)
