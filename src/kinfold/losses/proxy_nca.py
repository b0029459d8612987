"""Proxy-NCA: each sample near the vector of its class, against the vectors of all others (Movshovitz-Attias, 2017)."""

import torch
from torch import Tensor

from kinfold.losses.cross_entropy import Targets
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.proxies import new_proxies
from kinfold.losses.terms import ScoredPairs, Terms


def proxy_nca(similarity: Tensor, positives: Tensor, labels: Tensor | None = None, *, scale: float = 3.0) -> Tensor:
    """Loss of every sample, (B,), averaged over its classes where it has several.

    D_y + log sum_{c != y} exp(-D_c),   D_c = |scale x - scale p_c|^2 of unit vectors = scale^2 (2 - 2 s_c)

    The own class is not in the sum: the loss can be negative. `labels` as in `cross_entropy`.

    >>> own = torch.tensor([[True, False, False]])
    >>> proxy_nca(torch.tensor([[1.0, 1.0, -1.0]]), own).round(decimals=4) + 0.0
    tensor([0.])
    """
    targets = Targets(scale**2 * (2.0 * similarity - 2.0), positives, labels)  # -D
    return targets.mean(targets.others - targets.logits)


class ProxyNCA(Loss):
    """Mean over samples. Proxies want a far larger learning rate than the network (published: 50 times)."""

    def __init__(
        self,
        num_classes: int,
        dim: int,
        scale: float = 3.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        positive(scale=scale)
        self.scale = scale
        self.proxies = new_proxies(num_classes, dim, init="normal", scale=0.125, generator=generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(proxy_nca(pairs.scores, pairs.positives, pairs.labels, scale=self.scale))
