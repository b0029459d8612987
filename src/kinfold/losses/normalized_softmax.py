"""Normalized softmax: classify by the cosine to class vectors at a low temperature (Zhai & Wu, BMVC 2019)."""

import math

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits


class NormalizedSoftmax(ProxyLoss):
    """Mean cross-entropy of cos(x, p_c) / temperature over all classes; no bias.

    log sum_c exp(cos(x, p_c) / temperature) - cos(x, p_y) / temperature

    The "Softmax" of Roth et al. (ICML 2020).

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        temperature: Divisor of the cosines.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none".

    Examples:
        >>> loss = NormalizedSoftmax(num_classes=2, dim=2)
        >>> loss.proxies.data = torch.eye(2)
        >>> loss(torch.tensor([[1.0, 1.0]]), torch.tensor([0])).round(decimals=4)
        tensor(0.6931, grad_fn=<RoundBackward1>)
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        temperature: float = 0.05,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(temperature=temperature)
        self.temperature = temperature
        self.logit_scale = 1.0 / temperature
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, dim, init="uniform", scale=limit, generator=generator)

    def values(self, targets: TargetLogits) -> Tensor:
        return targets.cross_entropy()
