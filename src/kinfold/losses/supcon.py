"""SupCon: all positives of an anchor in one softmax with its negatives (Khosla et al., NeurIPS 2020)."""

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import count, masked_sum, union


def supcon(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    degree: Tensor | None = None,
    *,
    temperature: float = 0.1,
) -> Tensor:
    """Loss of every anchor, averaged over its positives outside the logarithm (L_out of the paper).

    log sum_{j in P, N} exp(s_aj / t) - mean_p s_ap / t

    With degrees r the mean is weighted, sum_p r_ap s_ap / sum_p r_ap: a cross-entropy with the targets r_ap / sum r.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        degree: Degrees of the positives in (0, 1], (B, R), for a real-valued relation.
        temperature: Divisor t of the similarities.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, True, False]])
        >>> supcon(torch.zeros(1, 3), positives, ~positives).round(decimals=4)
        tensor([1.0986])
    """
    if degree is None:
        positive_mean = masked_sum(similarity, positives) / count(positives).clamp(min=1)
    else:
        total = masked_sum(degree, positives)
        positive_mean = masked_sum(degree * similarity, positives) / total.masked_fill(total <= 0, 1.0)
    return masked_logsumexp(similarity, union(positives, negatives), 1.0 / temperature) - positive_mean / temperature


class SupCon(Loss):
    """Mean of the supervised contrastive loss over anchors.

    Accepts a real-valued relation, such as the similarities of a teacher.

    Args:
        temperature: Divisor of the cosines; 0.1 as in the paper's experiments.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    graded = True

    def __init__(
        self, temperature: float = 0.1, distance: Distance | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = supcon(pairs.scores, pairs.positives, pairs.negatives, pairs.degree, temperature=self.temperature)
        if pairs.degree is None:
            return pairs.per_anchor(values)
        has_both = (count(pairs.positives) > 0) & (count(union(pairs.positives, pairs.negatives)) > 1)
        return Terms.over(torch.where(has_both, values, 0.0), has_both)
