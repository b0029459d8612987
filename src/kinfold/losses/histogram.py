"""Histogram: the chance that a random negative is more similar than a random positive (Ustinova & Lempitsky, 2016)."""

from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.soft_histogram import soft_histogram
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import columns, count


def histogram(similarity: Tensor, positives: Tensor, negatives: Tensor, *, bins: int = 65) -> Tensor:
    """One number for all pairs; zero where there are no positives or no negatives.

    sum_r h-(r) sum_{q <= r} h+(q)

    h+ and h- are histograms of the similarities on `bins` nodes from -1 to 1; a pair is shared by its two nearest nodes
    in proportion to its distance from them, so that the histograms have a gradient.

    >>> import torch
    >>> kin = torch.tensor([[True, False]])
    >>> histogram(torch.tensor([[-1.0, 1.0]]), kin, ~kin, bins=3), histogram(torch.tensor([[1.0, -1.0]]), kin, ~kin)
    (tensor(1.), tensor(0.))
    """
    place = (similarity + 1.0) * ((bins - 1) / 2)  # in steps from the first node
    index, exists = columns(positives)  # a few of many: taken out first
    kin = soft_histogram(place.gather(1, index), exists, bins).sum(dim=0) / exists.sum().clamp(min=1)
    other = soft_histogram(place, negatives, bins).sum(dim=0) / count(negatives).sum().clamp(min=1)
    return (other * kin.cumsum(dim=0)).sum()


class Histogram(Loss):
    """No margin and no scale to tune, only the number of nodes: 65, or 11 for large data (Roth et al., 2020)."""

    kind = "batch"
    by_rows = False

    def __init__(self, bins: int = 65, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        if bins < 2:
            raise ValueError(f"bins counts the nodes including both ends and must be at least 2, got {bins}")
        self.bins = bins

    def terms(self, pairs: ScoredPairs) -> Terms:
        return Terms.over(histogram(pairs.scores, pairs.positives, pairs.negatives, bins=self.bins), 1)
