"""N-pair: one positive against all negatives of the batch, in a softmax over dot products (Sohn, NeurIPS 2016)."""

from typing import Literal

import torch
from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.miners.one_positive import OnePositive
from kinfold.pairs.masks import columns
from kinfold.pairs.measures import root


def n_pair(similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Loss of every anchor, (B,), averaged over its positives.

    mean_p log(1 + sum_n exp(s_an - s_ap))

    >>> kin = torch.tensor([[True, False]])
    >>> n_pair(torch.tensor([[1.0, 1.0]]), kin, ~kin).round(decimals=4)
    tensor([0.6931])
    """
    others = masked_logsumexp(similarity, negatives).unsqueeze(1)
    index, exists = columns(positives)  # (B, W)
    values = torch.where(exists, softplus(others - similarity.gather(1, index)), 0.0)
    return values.sum(dim=1) / exists.sum(dim=1).clamp(min=1)


class NPair(Loss):
    """Mean over anchors, on dot products of raw embeddings, plus `regularization` times the mean of |x|^norm_power.

    All negatives of the batch take part, not one per class as in Sohn's batches. `positives="one"` draws one positive
    per anchor, as in the study of Roth et al. (ICML 2020); its code has norm_power=1. Evaluate with Euclidean distances
    of raw embeddings.
    """

    measure = "dot"
    normalize = False

    def __init__(
        self,
        regularization: float = 0.005,
        norm_power: float = 2.0,
        positives: Literal["all", "one"] = "all",
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.regularization = regularization
        self.norm_power = norm_power
        self.chooser = OnePositive.option(positives, generator)
        self.by_rows = self.chooser is None  # one draw for the whole batch

    def terms(self, pairs: ScoredPairs) -> Terms:
        positives = pairs.positives if self.chooser is None else self.chooser.narrow(pairs.positives)
        return pairs.per_anchor(n_pair(pairs.scores, positives, pairs.negatives))

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        return norm_penalty(embeddings, self.regularization, self.norm_power)


def norm_penalty(embeddings: Tensor, weight: float, power: float) -> Tensor | None:
    """weight |x|^power of each embedding (B,): keeps raw embeddings from growing without bound."""
    if weight == 0:
        return None
    squared = embeddings.square().sum(dim=1)
    return weight * (squared if power == 2 else root(squared).pow(power))
