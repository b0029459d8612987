"""VICReg: positives together, every feature with variance, no two features correlated (Bardes et al., ICLR 2022)."""

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import mask_to_float
from kinfold.pairs.measures import safe_sqrt


def variance_and_covariance(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Penalties of one set of embeddings: features with a standard deviation below one, and correlated features.

    mean_j [1 - sqrt(Var(x_j) + 1e-4)]+        (1/d) sum_{i != j} Cov(x_i, x_j)^2

    Args:
        embeddings: (B, d).

    Returns:
        Two scalars; zero for fewer than two rows.

    Examples:
        >>> variance_and_covariance(torch.tensor([[2.0, 2.0], [-2.0, -2.0]]))
        (tensor(0.), tensor(64.))
    """
    rows, dim = embeddings.shape
    centered = embeddings - embeddings.mean(dim=0)
    covariance = centered.T @ centered / max(1, rows - 1)
    variance = covariance.diagonal()
    spread = relu(1.0 - safe_sqrt(variance + 1e-4)).mean()
    correlation = (covariance.square().sum() - variance.square().sum()) / dim
    return (spread, correlation) if rows > 1 else (spread * 0.0, correlation * 0.0)


class VICReg(Loss):
    """Weighted sum of three terms of raw embeddings.

    invariance: mean over positive pairs of |x - y|^2 / d
    variance, covariance: `variance_and_covariance` of the anchors and of the references

    Two views of the same items are anchors and references with labels 0, 1, 2, ... In a batch with classes, items of
    one class take the role of views, and the batch is both. Negatives are not used.

    Args:
        invariance_weight, variance_weight, covariance_weight: Factors of the terms; 25, 25 and 1 as in the paper. The
            variance terms of both views are averaged and the covariance terms added, as in the authors' code.
        reduction: "mean" or "sum", which are the same for one value per batch.
    """

    kind = "batch"
    measure = "squared-euclidean"
    normalize = False
    supports_chunks = False
    fixed_measure = "its variance and covariance are those of raw embeddings"

    def __init__(
        self,
        invariance_weight: float = 25.0,
        variance_weight: float = 25.0,
        covariance_weight: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.invariance_weight = invariance_weight
        self.variance_weight = variance_weight
        self.covariance_weight = covariance_weight

    def terms(self, pairs: ScoredPairs) -> Terms:
        assert pairs.anchors is not None
        assert pairs.references is not None
        positive = mask_to_float(pairs.positives, pairs.scores)
        count = positive.sum()
        invariance = (pairs.scores * positive).sum() / count.clamp(min=1.0) / pairs.anchors.shape[1]
        first = variance_and_covariance(pairs.anchors)
        second = first if pairs.symmetric else variance_and_covariance(pairs.references)
        variance, covariance = (first[0] + second[0]) / 2, first[1] + second[1]
        value = self.invariance_weight * invariance + self.variance_weight * variance
        value = value + self.covariance_weight * covariance
        return Terms.over(torch.where(count > 0, value, 0.0), (count > 0).int())
