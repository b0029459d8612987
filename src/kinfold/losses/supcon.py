"""SupCon: all positives of an anchor in one softmax with its negatives (Khosla et al., NeurIPS 2020)."""

from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import count, masked_sum, union


def supcon(similarity: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Loss of every anchor, averaged over its positives outside the logarithm (L_out of the paper).

    log sum_{j in P, N} exp(s_aj / t) - mean_p s_ap / t

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        temperature: Divisor t of the similarities.

    Returns:
        (B,).

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, True, False]])
        >>> supcon(torch.zeros(1, 3), positives, ~positives).round(decimals=4)
        tensor([1.0986])
    """
    positive_mean = masked_sum(similarity, positives) / count(positives).clamp(min=1)
    return masked_logsumexp(similarity, union(positives, negatives), 1.0 / temperature) - positive_mean / temperature


class SupCon(Loss):
    """Mean of the supervised contrastive loss over anchors.

    Args:
        temperature: Divisor of the cosines; 0.1 as in the paper's experiments.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, temperature: float = 0.1, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(supcon(pairs.scores, pairs.positives, pairs.negatives, temperature=self.temperature))
