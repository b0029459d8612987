"""Normalised softmax: classify by the cosine to class vectors at a low temperature (Zhai & Wu, BMVC 2019)."""

import math

import torch
from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.proxies import new_proxies
from kinfold.losses.terms import ScoredPairs, Terms


def cross_entropy(logits: Tensor, positives: Tensor) -> Tensor:
    """Loss of every sample, (B,): log sum_c exp(z_c) - z_y, averaged over its classes where it has several.

    >>> cross_entropy(torch.zeros(1, 4), torch.tensor([[True, False, False, False]])).round(decimals=4)
    tensor([1.3863])
    """
    own = torch.where(positives, logits, 0.0).sum(dim=1) / positives.sum(dim=1).clamp(min=1)
    return torch.logsumexp(logits, dim=1) - own


class NormalizedSoftmax(Loss):
    """Mean cross-entropy of cos(x, p_c) / temperature over all classes; no bias.

    The "Softmax" of the study by Roth et al. (ICML 2020).
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        temperature: float = 0.05,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        positive(temperature=temperature)
        self.temperature = temperature
        spread = 1.0 / math.sqrt(max(1, dim))
        self.proxies = new_proxies(num_classes, dim, init="uniform", scale=spread, generator=generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = cross_entropy(pairs.scores / self.temperature, pairs.positives)
        return Terms.over(torch.where(pairs.positives.any(dim=1), values, 0.0), pairs.positives.any(dim=1).sum())
