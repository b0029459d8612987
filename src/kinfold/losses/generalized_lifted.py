"""Generalized lifted structure: soft farthest positive against soft nearest negative (Hermans et al., 2017)."""

from torch import Tensor, relu

from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.n_pair import norm_penalty
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance


def generalized_lifted(distance: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 1.0) -> Tensor:
    """Loss of every anchor.

    [log sum_p exp(d_ap) + log sum_n exp(margin - d_an)]+

    Args:
        distance: Distances, (B, R).
        positives, negatives: Boolean masks, (B, R).
        margin: Required gap between the soft farthest positive and the soft nearest negative.

    Returns:
        (B,).

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, False]])
        >>> generalized_lifted(torch.tensor([[0.5, 1.2]]), positives, ~positives).round(decimals=4)
        tensor([0.3000])
    """
    return relu(masked_logsumexp(distance, positives) + masked_logsumexp(distance, negatives, -1.0) + margin)


class GeneralizedLifted(Loss):
    """Mean over anchors, on Euclidean distances of raw embeddings, plus a penalty on lengths.

    L = mean over anchors + regularization * mean |x|^norm_power

    The "GenLifted" of Roth et al. (ICML 2020), whose code has norm_power=1. Evaluate with Euclidean distances of raw
    embeddings.

    Args:
        margin: Required gap between the soft farthest positive and the soft nearest negative.
        regularization: Weight of the penalty on the lengths of embeddings.
        norm_power: Power of the length in the penalty.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    measure = "euclidean"
    normalize = False

    def __init__(
        self,
        margin: float = 1.0,
        regularization: float = 0.005,
        norm_power: float = 2.0,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        self.margin = margin
        self.regularization = regularization
        self.norm_power = norm_power

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(generalized_lifted(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin))

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        return norm_penalty(embeddings, self.regularization, self.norm_power)
