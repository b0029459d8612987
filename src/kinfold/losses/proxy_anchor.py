"""Proxy-anchor: each class vector pulls its hardest samples and pushes near negatives (Kim et al., CVPR 2020)."""

import math

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import count
from kinfold.pairs.relation_source import RelationSource


def proxy_anchor(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.1, scale: float = 32.0
) -> tuple[Tensor, Tensor]:
    """Pull and push of every class; the anchors are the class vectors.

    pull_c = log(1 + sum_{i of c} exp(-scale (s_ci - margin)))
    push_c = log(1 + sum_{i not of c} exp(scale (s_ci + margin)))

    Args:
        similarity: Cosines of class vectors and samples, (C, B).
        positives, negatives: Boolean masks, (C, B).
        margin: Positives should exceed it, negatives stay below its negative.
        scale: Factor of the similarities.

    Returns:
        Pull (C,) and push (C,).

    Examples:
        >>> positives = torch.tensor([[True], [False]])
        >>> pull, push = proxy_anchor(torch.tensor([[0.1], [-0.1]]), positives, ~positives)
        >>> pull.round(decimals=4), push.round(decimals=4)
        (tensor([0.6931, 0.0000]), tensor([0.0000, 0.6931]))
    """
    pull = softplus(masked_logsumexp(similarity, positives, -scale) + scale * margin)
    return pull, softplus(masked_logsumexp(similarity, negatives, scale) + scale * margin)


class ProxyAnchor(ProxyLoss):
    """Mean pull over the classes in the batch plus mean push over all classes.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        margin: Positives should exceed it, negatives stay below its negative.
        scale: Factor of the cosines.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none"; "none" returns pull plus push of each class, (C,).
    """

    proxies_are_anchors = True

    def __init__(
        self,
        num_classes: int,
        dim: int,
        margin: float = 0.1,
        scale: float = 32.0,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(scale=scale)
        self.margin = margin
        self.scale = scale
        deviation = math.sqrt(2.0 / max(1, num_classes))
        self.proxies = create_proxies(num_classes, dim, init="normal", scale=deviation, generator=generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        pull, push = proxy_anchor(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin, scale=self.scale)
        sums = torch.stack([pull.sum(), push.sum()])
        return Terms(pull + push, sums, _count_classes(count(pairs.positives)).to(sums))

    def counts(self, relation: RelationSource) -> Tensor:
        return _count_classes(relation.count_positives())


def _count_classes(positives: Tensor) -> Tensor:
    """Classes in the batch and all classes, from the number of positives of each class."""
    present = (positives > 0).sum()
    return torch.stack([present, torch.full_like(present, positives.shape[0])])
