"""NCA: the probability that a random neighbor of an anchor is of its class (Goldberger et al., NIPS 2004)."""

from torch import Tensor

from kinfold.losses.checks import check_positive, check_unit
from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import union


def nca(distance: Tensor, positives: Tensor, negatives: Tensor, *, scale: float = 1.0) -> Tensor:
    """Loss of every anchor: minus the logarithm of the probability of drawing a positive.

    -log ( sum_{p in P} exp(-scale d_ap) / sum_{j in P, N} exp(-scale d_aj) )

    Args:
        distance: Squared distances, (B, R).
        positives, negatives: Boolean masks, (B, R).
        scale: Factor of the distances.

    Returns:
        (B,).

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, False, False, False]])
        >>> nca(torch.ones(1, 4), positives, ~positives).round(decimals=4)
        tensor([1.3863])
    """
    everything = masked_logsumexp(distance, union(positives, negatives), -scale)
    return everything - masked_logsumexp(distance, positives, -scale)


class NCA(Loss):
    """Mean over anchors of the logarithmic form of neighborhood components analysis.

    Args:
        scale: Factor of the squared distances; 1 in the paper, where the length of the embeddings takes its role.
        normalize: True measures on unit vectors; False on raw embeddings, as in the paper.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    measure = "squared-euclidean"

    def __init__(
        self,
        scale: float = 1.0,
        normalize: bool = True,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        check_unit(normalize, distance)
        self.normalize = normalize
        super().__init__(reduction, distance)
        check_positive(scale=scale)
        self.scale = scale

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(nca(pairs.scores, pairs.positives, pairs.negatives, scale=self.scale))
