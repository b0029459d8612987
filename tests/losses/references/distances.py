"""Reference values of the distances that losses can be given, and of losses that use them."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.losses.references import anchors, arithmetic, clusterings, pairs, rankings, tuples
from tests.losses.references.arithmetic import Array, dot, noise_to_signal, norm, unit

Measure = Callable[[Array, Array], float]
_MODULES = (arithmetic, anchors, pairs, rankings, tuples, clusterings)


def gap(left: Array, right: Array) -> float:
    """Euclidean distance of the vectors as given."""
    return norm(left - right)


def to_ball(x: Array, curvature: float = 0.1, radius: float = 2.3) -> Array:
    """``p = tanh(sqrt(c) |x|) x / (sqrt(c) |x|)`` with |x| of at most the radius."""
    length, root = norm(x), math.sqrt(curvature)
    if length == 0.0:
        return x
    reach = root * min(length, radius)
    return x / length * (math.tanh(reach) / root)


def poincare(left: Array, right: Array, curvature: float = 0.1, radius: float = 2.3) -> float:
    """``acosh(1 + 2 c |p - q|^2 / ((1 - c |p|^2) (1 - c |q|^2))) / sqrt(c)`` in the Poincare ball."""
    p, q = to_ball(left, curvature, radius), to_ball(right, curvature, radius)
    factors = (1.0 - curvature * dot(p, p)) * (1.0 - curvature * dot(q, q))
    return math.acosh(1.0 + 2.0 * curvature * gap(p, q) ** 2 / factors) / math.sqrt(curvature)


# similarity and distance of each name
MEASURES: dict[str, tuple[Measure, Measure]] = {
    "cosine": (arithmetic.cosine, lambda x, y: gap(unit(x), unit(y))),
    "dot": (dot, lambda x, y: -dot(x, y)),
    "euclidean": (lambda x, y: -gap(x, y), gap),
    "snr": (lambda x, y: -noise_to_signal(x, y), noise_to_signal),
    "hyperbolic": (lambda x, y: -poincare(x, y), poincare),
}


@contextmanager
def measured_by(name: str) -> Iterator[None]:
    """Let every reference loss measure pairs in another way."""
    similarity, distance = MEASURES[name]
    with pytest.MonkeyPatch.context() as patch:
        for module in _MODULES:
            for attribute, function in (("cosine", similarity), ("distance", distance), ("raw_distance", distance)):
                if hasattr(module, attribute):
                    patch.setattr(module, attribute, function)
        patch.setattr(anchors, "dot", similarity)  # those of n-pair
        yield
