"""From a similarity to the probability that two items are of the same class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression
from torch import Tensor

from kinfold.data.items import Array

_BINS = 400  # quantiles of the scores that the map is fitted on
_LEAST = 1e-6  # no score is certain


@dataclass(frozen=True)
class ProbabilityMap:
    """A map from scores to probabilities that never falls.

    Args:
        scores: Ascending, (K,).
        probabilities: At these scores, for pairs of which half are positive, (K,). Between them it is linear.
    """

    scores: Array
    probabilities: Array

    def __call__(self, scores: Any, prior: float = 0.5) -> Array:
        """Return the probability that pairs with these scores are positive.

        Args:
            scores: Similarities of any shape.
            prior: The share of positive pairs among those that are asked about.

        Raises:
            ValueError: The prior is not between 0 and 1.
        """
        if not 0.0 < prior < 1.0:
            raise ValueError(f"the prior must be above 0 and below 1, got {prior}")
        balanced = np.interp(np.asarray(scores, dtype=np.float64), self.scores, self.probabilities)
        odds = balanced / (1.0 - balanced) * (prior / (1.0 - prior))
        result: Array = odds / (1.0 + odds)
        return result


def fit_probability(scores: Tensor, is_positive: Tensor, weights: Tensor) -> ProbabilityMap:
    """Fit the share of positives as a function of the score that never falls (isotonic regression).

    Args:
        scores: (T,).
        is_positive: Boolean (T,).
        weights: (T,). Those of positives and negatives are scaled to the same sum.
    """
    score, positive = scores.double().numpy(), is_positive.numpy()
    weight = weights.double().numpy().copy()
    for mask in (positive, ~positive):
        weight[mask] /= 2 * weight[mask].sum()
    order = np.argsort(score, kind="stable")
    score, positive, weight = score[order], positive[order], weight[order]
    # bins of equal weight, so that the tails where classes overlap have many
    bins = np.minimum((np.cumsum(weight) * _BINS).astype(int), _BINS - 1)
    total = np.bincount(bins, weight, _BINS)
    used = total > 0
    center = np.bincount(bins, weight * score, _BINS)[used] / total[used]
    share = np.bincount(bins, weight * positive, _BINS)[used] / total[used]
    fitted = np.asarray(isotonic_regression(share, weights=total[used]).x)
    return ProbabilityMap(center, np.clip(fitted, _LEAST, 1.0 - _LEAST))


@dataclass(frozen=True)
class Reliability:
    """Predicted probabilities beside observed shares, for classes that the map was not fitted on.

    Args:
        predicted, observed, weight: Of bins of the predicted probability, (B,); weights sum to one.
    """

    predicted: list[float]
    observed: list[float]
    weight: list[float]

    @property
    def error(self) -> float:
        """The mean difference of predicted and observed (expected calibration error)."""
        triples = zip(self.predicted, self.observed, self.weight, strict=True)
        return float(sum(weight * abs(predicted - observed) for predicted, observed, weight in triples))


def measure_reliability(probability: Array, positive: Array, weight: Array, bins: int = 10) -> Reliability:
    """Compare predicted probabilities with observed shares in bins of equal width."""
    weight = weight / weight.sum()
    number = np.minimum((probability * bins).astype(int), bins - 1)
    total = np.bincount(number, weight, bins)
    used = total > 0
    predicted = np.bincount(number, weight * probability, bins)[used] / total[used]
    observed = np.bincount(number, weight * positive, bins)[used] / total[used]
    return Reliability(predicted.tolist(), observed.tolist(), total[used].tolist())
