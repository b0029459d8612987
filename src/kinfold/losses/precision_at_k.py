"""Precision at k: similarities of items on the wrong side of the top-k border of each query (Lu et al., ICCV 2019)."""

import torch
from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import count, mask_out


def precision_at_k(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, k: int = 4, margin: float = 0.1
) -> Tensor:
    """Loss of every anchor, zero without a positive or without a negative.

    sum over N of s^ - sum over P of s,   s^ = s for positives, s + margin for negatives

    The k best by s^ should contain m = min(k, n+) positives. P are those of the m best positives that are not among
    them,
    N are as many negatives that took their places: the lowest-ranked ones among the k best. |N| = |P|, so the value is
    never negative, and it is at least margin * (number of avoidable errors in the top k).

    Only the k best items of each side can be in P or N, so nothing is sorted completely.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        k: Length of the ranking.
        margin: Added to the similarity of negatives.

    Returns:
        (B,).

    Examples:
        >>> similarity, positives = torch.tensor([[0.3, 0.8, 0.9]]), torch.tensor([[True, True, False]])
        >>> precision_at_k(similarity, positives, ~positives, k=2, margin=0.1).round(decimals=4)
        tensor([0.7000])
    """
    width = min(k, similarity.shape[1])
    rank = torch.arange(width, device=similarity.device)
    positive, num_positives = _take_best(similarity, positives, width)
    negative, num_negatives = _take_best(similarity + margin, negatives, width)
    size = (num_positives + num_negatives).clamp(max=width)  # all candidates if there are fewer than k
    wanted = torch.minimum(num_positives, size)
    # a positive of rank r is among the best if fewer than size - r negatives score above it (ties go to positives)
    above = torch.searchsorted(-negative.detach(), -positive.detach())
    inside = ((above + rank < size) & (rank < num_positives)).sum(dim=1, keepdim=True)
    is_missing = (rank >= inside) & (rank < wanted)  # P
    is_intruder = (rank >= size - wanted) & (rank < size - inside)  # N
    return torch.where(is_intruder, negative, 0.0).sum(dim=1) - torch.where(is_missing, positive, 0.0).sum(dim=1)


def _take_best(similarity: Tensor, mask: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` largest scores in the mask (B, W), padded with a very low one, and their number (B, 1)."""
    return mask_out(similarity, mask).topk(width, dim=1).values, count(mask).unsqueeze(1)


class PrecisionAtK(Loss):
    """Sum over anchors divided by the batch size, on cosines.

    In a balanced batch every anchor has n+ = per_class - 1 positives. With k up to n+ the loss asks for the best of
    them, with a larger k for all of them, with k - n+ places to spare. The authors' k and margin are not published; the
    defaults are those of the code of a follow-up. Start with k = per_class - 1 and tune k and margin on validation
    classes.

    Args:
        k: Length of the ranking.
        margin: Added to the similarity of negatives.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, k: int = 4, margin: float = 0.1, distance: Distance | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction, distance)
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        self.k = k
        self.margin = margin

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = precision_at_k(pairs.scores, pairs.positives, pairs.negatives, k=self.k, margin=self.margin)
        return Terms.over(values, torch.ones_like(values))
