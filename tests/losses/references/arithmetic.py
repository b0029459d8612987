"""Arithmetic of scalars, vectors and masks that the reference losses share."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Triplet = tuple[int, int, int]
Quadruplet = tuple[int, int, int, int | None]


def hinge(value: float) -> float:
    """``[z]+ = max(z, 0)``."""
    return max(value, 0.0)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, zero for an empty list."""
    if len(values) == 0:
        return 0.0
    return sum(values) / len(values)


def sigmoid(value: float) -> float:
    """``1 / (1 + e^-z)``, arranged so that the exponential never overflows."""
    if value >= 0.0:
        return 1.0 / (1.0 + math.exp(-value))
    return math.exp(value) / (1.0 + math.exp(value))


def log_sum_exp(values: Sequence[float]) -> float:
    """``log sum_i e^{z_i}`` with the largest term taken out of the sum; the list must not be empty."""
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


def log_one_plus_sum_exp(values: Sequence[float]) -> float:
    """``log(1 + sum_i e^{z_i})``: the one is the exponential of an additional zero. Zero for an empty list."""
    return log_sum_exp([0.0, *values])


def dot(left: Array, right: Array) -> float:
    """``sum_m u_m v_m``."""
    total = 0.0
    for m in range(len(left)):
        total += float(left[m]) * float(right[m])
    return total


def norm(vector: Array) -> float:
    """Euclidean length."""
    return math.sqrt(dot(vector, vector))


def unit(vector: Array) -> Array:
    """The vector divided by its length; a zero vector stays zero."""
    length = norm(vector)
    if length == 0.0:
        return vector
    return vector / length


def cosine(left: Array, right: Array) -> float:
    """``s``: inner product of the two unit vectors."""
    return dot(unit(left), unit(right))


def raw_distance(left: Array, right: Array) -> float:
    """``d*``: Euclidean distance of the vectors as given."""
    return norm(left - right)


def distance(left: Array, right: Array) -> float:
    """``d``: Euclidean distance of the two unit vectors."""
    return raw_distance(unit(left), unit(right))


def distance_or_square(left: Array, right: Array, squared: bool) -> float:
    """``d^2`` if ``squared``, otherwise ``d``."""
    value = distance(left, right)
    return value * value if squared else value


def variance(vector: Array) -> float:
    """Population variance over the features."""
    center = mean([float(value) for value in vector])
    return mean([(float(value) - center) ** 2 for value in vector])


def noise_to_signal(anchor: Array, other: Array) -> float:
    """``SNRd(a, x) = Var(a - x) / Var(a)`` of the two unit vectors."""
    return variance(unit(anchor) - unit(other)) / variance(unit(anchor))


def marked(mask: Mask, row: int) -> list[int]:
    """Columns that are true in one row of the mask."""
    return [column for column in range(mask.shape[1]) if mask[row, column]]


def valid_anchors(positives: Mask, negatives: Mask) -> Iterator[tuple[int, list[int], list[int]]]:
    """``(a, P, N)`` for every anchor with at least one positive and one negative."""
    for a in range(positives.shape[0]):
        positive_rows, negative_rows = marked(positives, a), marked(negatives, a)
        if positive_rows and negative_rows:
            yield a, positive_rows, negative_rows


def all_triplets(positives: Mask, negatives: Mask) -> list[Triplet]:
    """Every ``(a, p, n)`` with p in P and n in N."""
    return [
        (a, p, n)
        for a, positive_rows, negative_rows in valid_anchors(positives, negatives)
        for p in positive_rows
        for n in negative_rows
    ]


def masked_cosines(anchors: Array, references: Array, mask: Mask) -> list[float]:
    """Cosine of every pair that is true in the mask."""
    return [cosine(anchors[a], references[r]) for a in range(len(anchors)) for r in marked(mask, a)]


def masked_distances(anchors: Array, references: Array, mask: Mask) -> list[float]:
    """Distance ``d`` of every pair that is true in the mask."""
    return [distance(anchors[a], references[r]) for a in range(len(anchors)) for r in marked(mask, a)]


def mean_norm_power(anchors: Array, norm_power: float) -> float:
    """Regularizer: mean over all anchors of ``||a||^norm_power``."""
    return mean([norm(anchor) ** norm_power for anchor in anchors])


def beta_of(beta: float | Array, row: int) -> float:
    """The boundary of one anchor: the number itself, or the entry of the array that belongs to the anchor row."""
    if isinstance(beta, np.ndarray) and beta.ndim > 0:
        return float(beta[row])
    return float(beta)
