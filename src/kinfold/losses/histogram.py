"""Histogram loss: chance that a negative is more similar than a positive (Ustinova & Lempitsky, NeurIPS 2016)."""

from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.soft_histogram import soft_histogram
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import count, list_columns


def histogram(similarity: Tensor, positives: Tensor, negatives: Tensor, *, bins: int = 65) -> Tensor:
    """Loss of all pairs together; zero without positives or without negatives.

    sum_r h-(r) sum_{q <= r} h+(q)

    h+ and h- are histograms of the similarities on `bins` nodes from -1 to 1. A pair is split between its two nearest
    nodes by its distance from them, so the histograms have a gradient.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        bins: Number of nodes, both ends included.

    Returns:
        A scalar.

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, False]])
        >>> histogram(torch.tensor([[-1.0, 1.0]]), positives, ~positives, bins=3)
        tensor(1.)
        >>> histogram(torch.tensor([[1.0, -1.0]]), positives, ~positives)
        tensor(0.)
    """
    position = (similarity + 1.0) * ((bins - 1) / 2)  # in steps from the first node
    index, exists = list_columns(positives)  # positives are few: gather them first
    positive = soft_histogram(position.gather(1, index), exists, bins).sum(dim=0) / exists.sum().clamp(min=1)
    negative = soft_histogram(position, negatives, bins).sum(dim=0) / count(negatives).sum().clamp(min=1)
    return (negative * positive.cumsum(dim=0)).sum()


class Histogram(Loss):
    """Histogram loss of a batch, on cosines; it has no margin and no scale to tune.

    Args:
        bins: Number of nodes from -1 to 1, both ends included; Roth et al. (2020) use 65, and 11 for large datasets.
        reduction: "mean" or "sum".
    """

    kind = "batch"
    supports_chunks = False

    def __init__(self, bins: int = 65, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        if bins < 2:
            raise ValueError(f"bins is the number of nodes, both ends included, and must be at least 2, got {bins}")
        self.bins = bins

    def terms(self, pairs: ScoredPairs) -> Terms:
        return Terms.over(histogram(pairs.scores, pairs.positives, pairs.negatives, bins=self.bins), 1)
