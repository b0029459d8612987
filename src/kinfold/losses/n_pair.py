"""N-pair loss: one positive against all negatives in a softmax over dot products (Sohn, NeurIPS 2016)."""

from typing import Literal

import torch
from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.miners.one_positive import OnePositiveMiner
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import list_columns
from kinfold.pairs.measures import safe_sqrt


def n_pair(similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Loss of every anchor, averaged over its positives.

    mean_p log(1 + sum_n exp(s_an - s_ap))

    Args:
        similarity: Dot products, (B, R).
        positives, negatives: Boolean masks, (B, R).

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> n_pair(torch.tensor([[1.0, 1.0]]), positives, ~positives).round(decimals=4)
        tensor([0.6931])
    """
    negative_logits = masked_logsumexp(similarity, negatives).unsqueeze(1)
    index, exists = list_columns(positives)  # (B, W)
    values = torch.where(exists, softplus(negative_logits - similarity.gather(1, index)), 0.0)
    return values.sum(dim=1) / exists.sum(dim=1).clamp(min=1)


class NPair(Loss):
    """Mean over anchors, on dot products of raw embeddings, plus a penalty on lengths.

    L = mean over anchors + regularization * mean |x|^norm_power

    All negatives of the batch are used, not one per class as in the paper's batches. Evaluate with Euclidean distances
    of raw embeddings.

    Args:
        regularization: Weight of the penalty on the lengths of embeddings.
        norm_power: Power of the length in the penalty; the code of Roth et al. (ICML 2020) has 1.
        positives: "all" averages over the positives of an anchor, "one" draws one of them, as in Roth et al. (2020).
        generator: Source of random numbers for positives="one"; by default a new one with seed 0.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    measure = "dot"
    normalize = False

    def __init__(
        self,
        regularization: float = 0.005,
        norm_power: float = 2.0,
        positives: Literal["all", "one"] = "all",
        generator: torch.Generator | None = None,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        self.regularization = regularization
        self.norm_power = norm_power
        self.chooser = OnePositiveMiner.from_option(positives, generator)
        self.supports_chunks = self.chooser is None  # one draw for the whole batch

    def terms(self, pairs: ScoredPairs) -> Terms:
        positives = pairs.positives if self.chooser is None else self.chooser.narrow(pairs.positives)
        return pairs.per_anchor(n_pair(pairs.scores, positives, pairs.negatives))

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        return norm_penalty(embeddings, self.regularization, self.norm_power)


def norm_penalty(embeddings: Tensor, weight: float, power: float) -> Tensor | None:
    """weight |x|^power of each embedding (B,): prevents raw embeddings from growing without bound."""
    if weight == 0:
        return None
    squared = embeddings.square().sum(dim=1)
    return weight * (squared if power == 2 else safe_sqrt(squared).pow(power))
