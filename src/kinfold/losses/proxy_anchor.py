"""Proxy-anchor: each class vector pulls its hardest samples and pushes the nearest others (Kim et al., CVPR 2020)."""

import math

import torch
from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.proxies import new_proxies
from kinfold.losses.terms import ScoredPairs, Terms, masked_logsumexp, softplus


def proxy_anchor(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.1, scale: float = 32.0
) -> tuple[Tensor, Tensor]:
    """Pull and push of every class, (C,) each, from similarities (B, C).

    pull_c = log(1 + sum_{i of c} exp(-scale (s_ic - margin)))
    push_c = log(1 + sum_{i not of c} exp(scale (s_ic + margin)))

    >>> own = torch.tensor([[True, False]])
    >>> [part.round(decimals=4).tolist() for part in proxy_anchor(torch.tensor([[0.1, -0.1]]), own, ~own)]
    [[0.6930999755859375, 0.0], [0.0, 0.6930999755859375]]
    """
    pull = softplus(masked_logsumexp(-scale * (similarity - margin), positives, dim=0))
    return pull, softplus(masked_logsumexp(scale * (similarity + margin), negatives, dim=0))


class ProxyAnchor(Loss):
    """Mean pull over the classes in the batch plus mean push over all classes; the rows of this loss are the proxies.

    reduction="none" gives (C,), pull plus push of each class.
    """

    by_rows = False

    def __init__(
        self,
        num_classes: int,
        dim: int,
        margin: float = 0.1,
        scale: float = 32.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        positive(scale=scale)
        self.margin = margin
        self.scale = scale
        spread = math.sqrt(2.0 / max(1, num_classes))
        self.proxies = new_proxies(num_classes, dim, init="normal", scale=spread, generator=generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        pull, push = proxy_anchor(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin, scale=self.scale)
        present = pairs.positives.any(dim=0).sum().to(pull.dtype)
        counts = torch.stack([present, torch.full_like(present, push.shape[0])])
        return Terms(pull + push, torch.stack([pull.sum(), push.sum()]), counts)
