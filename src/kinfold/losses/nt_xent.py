"""NT-Xent: each positive against all negatives in a softmax over cosines (SimCLR; Chen et al., ICML 2020)."""

from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.n_pair import n_pair
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance


def nt_xent(similarity: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Loss of every anchor, averaged over its positives.

    mean_p -log( exp(s_ap / t) / (exp(s_ap / t) + sum_n exp(s_an / t)) )

    The denominator has the one positive and the negatives, not the other positives; that of `supcon` has them all.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        temperature: Divisor t of the similarities.

    Returns:
        (B,).

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, False]])
        >>> nt_xent(torch.tensor([[0.5, 0.5]]), positives, ~positives).round(decimals=4)
        tensor([0.6931])
    """
    return n_pair(similarity / temperature, positives, negatives)


class NTXent(Loss):
    """Mean over anchors. With two views per item it equals `supcon`.

    Args:
        temperature: Divisor of the cosines; 0.1 was best in the SimCLR study.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, temperature: float = 0.1, distance: Distance | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(nt_xent(pairs.scores, pairs.positives, pairs.negatives, temperature=self.temperature))
