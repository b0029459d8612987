"""SupCon: all kin of an anchor share one softmax with everything else (Khosla et al., NeurIPS 2020)."""

from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import count, number


def supcon(similarity: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Loss of every anchor, (B,), averaged over its positives outside the logarithm (L_out of the paper).

    log sum_{j in P, N} exp(s_aj / t) - mean_p s_ap / t

    >>> import torch
    >>> kin = torch.tensor([[True, True, False]])
    >>> supcon(torch.zeros(1, 3), kin, ~kin).round(decimals=4)
    tensor([1.0986])
    """
    logits = similarity / temperature
    own = (logits * number(positives, logits)).sum(dim=1) / count(positives).clamp(min=1)
    return masked_logsumexp(logits, positives | negatives) - own


class SupCon(Loss):
    """Mean over anchors. Temperature 0.1 as in the paper's experiments."""

    def __init__(self, temperature: float = 0.1, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        positive(temperature=temperature)
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(supcon(pairs.scores, pairs.positives, pairs.negatives, temperature=self.temperature))
