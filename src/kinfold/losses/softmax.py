"""Softmax: an ordinary linear classifier on raw embeddings, as a baseline."""

import math

import torch
from torch import nn

from kinfold.losses.cross_entropy import cross_entropy
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.proxies import new_proxies
from kinfold.losses.terms import ScoredPairs, Terms


class Softmax(Loss):
    """Mean cross-entropy of x . w_c + b_c over all classes. The class vectors are `proxies`.

    log sum_c exp(x . w_c + b_c) - (x . w_y + b_y)

    >>> loss = Softmax(num_classes=2, dim=2)
    >>> loss.proxies.data = torch.eye(2)
    >>> loss(torch.tensor([[3.0, 3.0]]), torch.tensor([0])).round(decimals=4)
    tensor(0.6931, grad_fn=<RoundBackward1>)

    The study of Roth et al. means `normalized-softmax` by this name.
    """

    measure = "dot"
    normalize = False

    def __init__(
        self, num_classes: int, dim: int, generator: torch.Generator | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        spread = 1.0 / math.sqrt(max(1, dim))
        self.proxies = new_proxies(num_classes, dim, init="uniform", scale=spread, generator=generator)
        self.bias = nn.Parameter(torch.zeros(num_classes, device=self.proxies.device))

    def terms(self, pairs: ScoredPairs) -> Terms:
        logits = pairs.scores + self.bias.to(pairs.scores.dtype)
        return pairs.per_sample(cross_entropy(logits, pairs.positives, pairs.labels))
