"""Softmax: a linear classifier on raw embeddings, as a baseline."""

import math

import torch
from torch import Tensor, nn

from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits


class Softmax(ProxyLoss):
    """Mean cross-entropy of x . w_c + b_c over all classes. The class vectors w are `proxies`.

    log sum_c exp(x . w_c + b_c) - (x . w_y + b_y)

    Roth et al. (ICML 2020) use this name for `normalized-softmax`.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none".

    Examples:
        >>> loss = Softmax(num_classes=2, dim=2)
        >>> loss.proxies.data = torch.eye(2)
        >>> loss(torch.tensor([[3.0, 3.0]]), torch.tensor([0])).round(decimals=4)
        tensor(0.6931, grad_fn=<RoundBackward1>)
    """

    measure = "dot"
    normalize = False

    def __init__(
        self,
        num_classes: int,
        dim: int,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, dim, init="uniform", scale=limit, generator=generator)
        self.bias = nn.Parameter(torch.zeros(num_classes, device=self.proxies.device))

    def values(self, targets: TargetLogits) -> Tensor:
        return targets.cross_entropy()
