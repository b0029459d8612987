"""What scores vary with: sums of squares and variance components of a complete table of runs.

The table has one axis for each factor, such as backbone, loss, sampler and seed, and one score in each cell. All
effects are then orthogonal, and their sums of squares add up to the total.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from kinfold.experiments import Interval, compute_interval

Array = npt.NDArray[np.float64]
REST = "rest"


@dataclass(frozen=True)
class Variance:
    """The part of one effect.

    Attributes:
        share: Its sum of squares over the total, with its jackknife interval over the levels of the first factor.
        deviation: Standard deviation of the effects of its levels under the additive random-effects model, in the
            unit of the scores; None for interactions, which are part of the rest there.
    """

    share: Interval
    deviation: Interval | None


def decompose(scores: Array, factors: Sequence[str]) -> dict[str, Variance]:
    """Decompose the variance of a complete table of scores.

    Args:
        scores: One axis for each factor, at least two levels each.
        factors: Names of the axes.

    Returns:
        Effect -> its part: all factors, all pairs of factors as "first x second", and what is left.

    Raises:
        ValueError: A score is missing, or an axis has fewer than two levels (three for the first, which is left out
            level by level).
    """
    if len(factors) != scores.ndim or min(scores.shape) < 2 or scores.shape[0] < 3:
        raise ValueError(f"{len(factors)} factors need as many axes of two levels or more, got {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("a decomposition needs every cell; leave out the methods with missing runs")
    shares, deviations = _compute_shares(scores, factors), compute_deviations(scores, factors)
    parts = [np.delete(scores, level, axis=0) for level in range(scores.shape[0])]
    left_out = [_compute_shares(part, factors) for part in parts]
    left_out_deviations = [compute_deviations(part, factors) for part in parts]
    return {
        name: Variance(
            _jackknife(share, [part[name] for part in left_out]),
            _jackknife(deviations[name], [part[name] for part in left_out_deviations]) if name in deviations else None,
        )
        for name, share in shares.items()
    }


def compute_sums_of_squares(scores: Array, factors: Sequence[str]) -> dict[str, float]:
    """Return the sum of squares of each factor, of each pair of factors, and of the rest."""
    grand = scores.mean()
    axes = range(scores.ndim)
    effects: dict[tuple[int, ...], Any] = {
        (axis,): scores.mean(axis=tuple(other for other in axes if other != axis), keepdims=True) - grand
        for axis in axes
    }
    for pair in combinations(axes, 2):
        means = scores.mean(axis=tuple(other for other in axes if other not in pair), keepdims=True)
        effects[pair] = means - grand - effects[pair[:1]] - effects[pair[1:]]
    sums = {
        " x ".join(factors[axis] for axis in chosen): float((effect**2).sum() * (scores.size / effect.size))
        for chosen, effect in effects.items()
    }
    return {**sums, REST: float(((scores - grand - sum(effects.values())) ** 2).sum())}


def compute_deviations(scores: Array, factors: Sequence[str]) -> dict[str, float]:
    """Return standard deviations of the additive random-effects model, by the method of moments.

    A component that would be negative is 0.
    """
    sums = compute_sums_of_squares(scores, factors)
    total = ((scores - scores.mean()) ** 2).sum()
    rest = max(0.0, total - sum(sums[name] for name in factors))
    error = rest / (scores.size - 1 - sum(levels - 1 for levels in scores.shape))
    deviations = {
        name: float(np.sqrt(max(0.0, (sums[name] / (levels - 1) - error) * levels / scores.size)))
        for name, levels in zip(factors, scores.shape, strict=True)
    }
    return {**deviations, REST: float(np.sqrt(error))}


def _compute_shares(scores: Array, factors: Sequence[str]) -> dict[str, float]:
    sums = compute_sums_of_squares(scores, factors)
    total = sum(sums.values())
    return {name: value / total if total > 0 else 0.0 for name, value in sums.items()}


def _jackknife(value: float, left_out: Sequence[float]) -> Interval:
    """The value with a 95 % interval from the values without each level."""
    count = len(left_out)
    half_width = compute_interval([count * value - (count - 1) * other for other in left_out]).half_width
    return Interval(value, half_width, count)
