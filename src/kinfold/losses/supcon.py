"""SupCon: all kin of an anchor share one softmax with everything else (Khosla et al., NeurIPS 2020)."""

import torch
from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.terms import ScoredPairs, Terms, masked_logsumexp


def supcon(similarity: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Loss of every anchor, (B,), averaged over its positives outside the logarithm (L_out of the paper).

    log sum_{j in P, N} exp(s_aj / t) - mean_p s_ap / t

    >>> kin = torch.tensor([[True, True, False]])
    >>> supcon(torch.zeros(1, 3), kin, ~kin).round(decimals=4)
    tensor([1.0986])
    """
    logits = similarity / temperature
    own = torch.where(positives, logits, 0.0).sum(dim=1) / positives.sum(dim=1).clamp(min=1)
    return masked_logsumexp(logits, positives | negatives) - own


class SupCon(Loss):
    """Mean over anchors. Temperature 0.1 as in the paper's experiments."""

    def __init__(self, temperature: float = 0.1, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        positive(temperature=temperature)
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(supcon(pairs.scores, pairs.positives, pairs.negatives, temperature=self.temperature))
