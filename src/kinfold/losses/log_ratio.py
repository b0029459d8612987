"""Log-ratio loss: ratios of distances as given by real-valued labels (Kim et al., CVPR 2019)."""

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive, check_unit
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.scoring import Measure
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import count, mask_to_float


def log_ratio(distance: Tensor, label_distance: Tensor, mask: Tensor, *, epsilon: float = 1e-6) -> Tensor:
    """Loss of every anchor.

    mean over pairs i < j of (log(d_ai / d_aj) - log(y_ai / y_aj))^2

    With x_i = log d_ai - log y_ai this is the mean of (x_i - x_j)^2, twice the variance of x: no pairs are listed.

    Args:
        distance: Distances of embeddings, (B, R).
        label_distance: Distances y of labels, (B, R).
        mask: Which items are used, boolean (B, R).
        epsilon: Added to both distances.

    Returns:
        (B,), zero for an anchor with fewer than two items.

    Examples:
        >>> distance = torch.tensor([[1.0, 2.0, 4.0]])
        >>> log_ratio(distance, 3 * distance, distance > 0).round(decimals=4)
        tensor([0.])
    """
    used, number = mask_to_float(mask, distance), count(mask)
    x = ((distance + epsilon).log() - (label_distance + epsilon).log()) * used
    mean = x.sum(dim=1) / number.clamp(min=1)
    squares = ((x - mean[:, None]).square() * used).sum(dim=1)
    return 2.0 * squares / (number - 1).clamp(min=1)


class LogRatio(Loss):
    """Mean over anchors. The relation holds degrees r, and the distance of labels is 1 - r.

    Only ratios matter: for distances y of labels pass `relation = 1 - y / y.max()`. With labels instead of a relation,
    the distance is 0 or 1, which is what `epsilon` makes of a ratio: choose a large one, such as 0.1.

    Args:
        squared: True compares squared Euclidean distances, as the paper prints it; False the distances themselves.
        normalize: False measures raw embeddings, as in the paper; True unit vectors.
        epsilon: Added to both distances; 1e-6 as in the authors' code.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    graded = True
    measure: Measure = "squared-euclidean"
    normalize = False

    def __init__(
        self,
        squared: bool = True,
        normalize: bool = False,
        epsilon: float = 1e-6,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        check_unit(not normalize, distance)
        self.normalize = normalize
        self.measure = "squared-euclidean" if squared else "euclidean"
        super().__init__(reduction, distance)
        check_positive(epsilon=epsilon)
        self.squared = squared
        self.epsilon = epsilon

    def terms(self, pairs: ScoredPairs) -> Terms:
        mask = pairs.positives | pairs.negatives
        values = log_ratio(pairs.scores, 1.0 - pairs.relevance, mask, epsilon=self.epsilon)
        has_two = count(mask) > 1
        return Terms.over(torch.where(has_two, values, 0.0), has_two)
