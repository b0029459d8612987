"""NT-Xent: each positive against all negatives in a softmax over cosines (Chen et al., ICML 2020; SimCLR)."""

from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.n_pair import n_pair
from kinfold.losses.options import positive
from kinfold.losses.terms import ScoredPairs, Terms


def nt_xent(similarity: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Loss of every anchor, (B,), averaged over its positives.

    mean_p -log( exp(s_ap / t) / (exp(s_ap / t) + sum_n exp(s_an / t)) )

    The denominator holds the one positive and the negatives, not the other positives; `supcon` holds them all.

    >>> import torch
    >>> kin = torch.tensor([[True, False]])
    >>> nt_xent(torch.tensor([[0.5, 0.5]]), kin, ~kin).round(decimals=4)
    tensor([0.6931])
    """
    return n_pair(similarity / temperature, positives, negatives)


class NTXent(Loss):
    """Mean over anchors. Temperature 0.1 was best in the SimCLR study; with two views per item both papers agree on the
    denominator."""

    def __init__(self, temperature: float = 0.1, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        positive(temperature=temperature)
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(nt_xent(pairs.scores, pairs.positives, pairs.negatives, temperature=self.temperature))
