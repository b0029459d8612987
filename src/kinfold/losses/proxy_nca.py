"""Proxy-NCA: each sample near its class vector, against the vectors of all other classes (Movshovitz-Attias, 2017)."""

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.cross_entropy import TargetLogits
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.terms import ScoredPairs, Terms


def proxy_nca(similarity: Tensor, positives: Tensor, labels: Tensor | None = None, *, scale: float = 3.0) -> Tensor:
    """Loss of every sample, averaged over its classes if it has several.

    D_y + log sum_{c != y} exp(-D_c),   D_c = |scale x - scale p_c|^2 of unit vectors = scale^2 (2 - 2 s_c)

    The class of the sample is not in the sum, so the loss can be negative.

    Args:
        similarity: Cosines of samples and class vectors, (B, C).
        positives: Boolean mask of the classes of each sample, (B, C).
        labels: (B, 1), if every sample has exactly one class; faster than the mask.
        scale: Length of the scaled vectors.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False, False]])
        >>> proxy_nca(torch.tensor([[1.0, 1.0, -1.0]]), positives).round(decimals=4) + 0.0
        tensor([0.])
    """
    targets = TargetLogits(scale**2 * (2.0 * similarity - 2.0), positives, labels)  # -D
    return targets.mean(targets.negatives - targets.logits)


class ProxyNCA(Loss):
    """Mean over samples. Proxies need a far larger learning rate than the network (published: 50 times).

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        scale: Length to which samples and proxies are scaled.
        generator: Source of random numbers for the initial proxies; by default a new one with seed 0.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        scale: float = 3.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        check_positive(scale=scale)
        self.scale = scale
        self.proxies = create_proxies(num_classes, dim, init="normal", scale=0.125, generator=generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(proxy_nca(pairs.scores, pairs.positives, pairs.labels, scale=self.scale))
