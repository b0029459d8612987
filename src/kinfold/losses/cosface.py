"""CosFace: classify by the cosine to class vectors, with a margin taken from the target's (Wang et al., CVPR 2018)."""

import math

import torch

from kinfold.losses.cross_entropy import Targets
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.proxies import new_proxies
from kinfold.losses.terms import ScoredPairs, Terms


class CosFace(Loss):
    """Mean cross-entropy of scale * cos(x, p_c), where the target has scale * (cos - margin).

    >>> loss = CosFace(num_classes=2, dim=2, margin=0.5, scale=2.0)
    >>> loss.proxies.data = torch.eye(2)
    >>> loss(torch.tensor([[1.0, 1.0]]), torch.tensor([0])).round(decimals=4)
    tensor(1.3133, grad_fn=<RoundBackward1>)

    Defaults are the paper's for faces, which the DRML tables use too.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        margin: float = 0.35,
        scale: float = 64.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        positive(scale=scale)
        self.margin = margin
        self.scale = scale
        spread = 1.0 / math.sqrt(max(1, dim))
        self.proxies = new_proxies(num_classes, dim, init="uniform", scale=spread, generator=generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        targets = Targets(self.scale * pairs.scores, pairs.positives, pairs.labels)
        return pairs.per_sample(targets.cross_entropy(targets.logits - self.scale * self.margin))
