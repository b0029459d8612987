"""Precision at k: the similarities misplaced across the top-k border of each query (Lu et al., ICCV 2019)."""

import torch
from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import count, lowered


def precision_at_k(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, k: int = 4, margin: float = 0.1
) -> Tensor:
    """Loss of every anchor, (B,): zero without a positive or without a negative.

    sum over N of s^ - sum over P of s,   s^ = s for positives, s + margin for negatives

    The k best by s^ should hold m = min(k, n+) positives. P are those of the m best positives that were left out, N as
    many negatives that took their places: the lowest-ranked among the k best. |N| = |P|, so the value is never
    negative, and it bounds margin * (number of avoidable wrong items in the top k).

    Only the k best of each side can take part, so nothing is sorted in full.

    >>> s, kin = torch.tensor([[0.3, 0.8, 0.9]]), torch.tensor([[True, True, False]])
    >>> precision_at_k(s, kin, ~kin, k=2, margin=0.1).round(decimals=4)
    tensor([0.7000])
    """
    width = min(k, similarity.shape[1])
    rank = torch.arange(width, device=similarity.device)
    kin, kin_count = _best(similarity, positives, width)
    other, other_count = _best(similarity + margin, negatives, width)
    size = (kin_count + other_count).clamp(max=width)  # all candidates where there are fewer than k
    wanted = torch.minimum(kin_count, size)
    # a positive of rank r is among the best if fewer than size - r negatives score above it (ties go to positives)
    above = torch.searchsorted(-other.detach(), -kin.detach())
    inside = ((above + rank < size) & (rank < kin_count)).sum(dim=1, keepdim=True)
    left_out = (rank >= inside) & (rank < wanted)  # P
    intruding = (rank >= size - wanted) & (rank < size - inside)  # N
    return torch.where(intruding, other, 0.0).sum(dim=1) - torch.where(left_out, kin, 0.0).sum(dim=1)


def _best(similarity: Tensor, mask: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` largest scores in the mask (B, W), padded with a very low one, and how many there are (B, 1)."""
    return lowered(similarity, mask).topk(width, dim=1).values, count(mask).unsqueeze(1)


class PrecisionAtK(Loss):
    """Sum over anchors divided by the batch size, on cosines.

    A balanced batch has n+ = per_class - 1 positives for everyone: k at or below it asks for the best of them, k
    above it for all of them with k - n+ places to spare. The authors' k and margin are not known; the defaults are
    those of a follow-up's code. k = per_class - 1 is a neutral start; tune k and margin on validation classes.
    """

    def __init__(self, k: int = 4, margin: float = 0.1, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        self.k = k
        self.margin = margin

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = precision_at_k(pairs.scores, pairs.positives, pairs.negatives, k=self.k, margin=self.margin)
        return Terms.over(values, values.shape[0])
