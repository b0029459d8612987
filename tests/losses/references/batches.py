"""Losses of a whole batch that are no sums over its anchors."""

import math

from tests.losses.references.arithmetic import Array, Mask, hinge, marked, masked_cosines, mean, raw_distance
from tests.losses.references.catalog import reference


@reference("intra-pair-variance", {"positive_tolerance": 0.2, "negative_tolerance": -0.3})
def intra_pair_variance(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    positive_tolerance: float = 0.01,
    negative_tolerance: float = 0.01,
) -> float:
    """Mean over positive pairs of ``[(1 - t) m - s]+^2`` plus mean over negative pairs of ``[s - (1 + t) m]+^2``."""
    near, far = masked_cosines(anchors, references, positives), masked_cosines(anchors, references, negatives)
    low, high = (1.0 - positive_tolerance) * mean(near), (1.0 + negative_tolerance) * mean(far)
    return mean([hinge(low - s) ** 2 for s in near]) + mean([hinge(s - high) ** 2 for s in far])


def covariance(rows: Array, i: int, j: int) -> float:
    """Covariance of two features, divided by the number of rows less one."""
    center = [mean([float(row[k]) for row in rows]) for k in (i, j)]
    return sum((float(row[i]) - center[0]) * (float(row[j]) - center[1]) for row in rows) / (len(rows) - 1)


@reference("vicreg", {"invariance_weight": 3.0, "variance_weight": 2.0, "covariance_weight": 0.7})
def vicreg(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
) -> float:
    """Weighted sum of invariance over positive pairs, and of variance and covariance of anchors and references."""
    pairs = [raw_distance(anchors[a], references[r]) ** 2 for a in range(len(anchors)) for r in marked(positives, a)]
    if not pairs:
        return 0.0
    dim = anchors.shape[1]
    total: float = invariance_weight * mean(pairs) / dim
    for rows in (anchors, references):
        spread = [hinge(1.0 - math.sqrt(covariance(rows, j, j) + 1e-4)) for j in range(dim)]
        total += variance_weight * mean(spread) / 2
        total += (
            covariance_weight * sum(covariance(rows, i, j) ** 2 for i in range(dim) for j in range(dim) if i != j) / dim
        )
    return total
