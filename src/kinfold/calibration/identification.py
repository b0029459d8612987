"""Thresholds of identification: the rate at which items of unknown classes are given a label, by the gallery size."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.calibration.drawing import ClassItems

_MAX_PROBES = 20_000
_PROBES_PER_CLASS = 20
_STEPS = 45  # of the bisection: thresholds to 1e-13


@dataclass(frozen=True)
class IdentificationPoint:
    """An estimated threshold for galleries of one size.

    Args:
        gallery_classes: The number of classes in the gallery.
        threshold: Similarities of at least this value are given the label of the nearest item.
        extrapolated: Whether the gallery is larger than the classes at hand, so that rare near classes were not seen.
    """

    gallery_classes: int
    threshold: float
    extrapolated: bool


def estimate_thresholds(
    items: ClassItems, far: float, sizes: Sequence[int], shots: int, generator: torch.Generator
) -> list[IdentificationPoint]:
    """Estimate the threshold at which a share `far` of items of unknown classes is given a label.

    Each class is an unknown class once, and the others are candidates for the gallery. If k of the n - 1 others are
    near enough to an item, a gallery of G of them, drawn at random, gives it no label with the probability
    C(n - 1 - k, G) / C(n - 1, G); for a larger gallery (1 - k / (n - 1))^G is used.

    Args:
        items: Items of at least two classes.
        far: The false-positive identification rate.
        sizes: Numbers of classes in a gallery.
        shots: Items of a class that are in the gallery.
        generator: Draws items.
    """
    near, weights = _score_classes(items, shots, generator)
    others = items.classes - 1
    return [
        IdentificationPoint(size, _bisect(near, weights, far, size, others), size > others) for size in sorted(sizes)
    ]


def rate_at(near: Tensor, weights: Tensor, threshold: float, size: int, others: int) -> float:
    """Return the false-positive identification rate at a threshold.

    Args:
        near: Similarity of each probe to the nearest item of every class, (P, n), -inf for its own.
        weights: Of probes, (P,), sum one.
        threshold: The threshold.
        size: Classes in the gallery.
        others: The number of classes without that of a probe.
    """
    k = (near >= threshold).sum(dim=1).double()
    if size > others:
        unlabeled = (1.0 - k / others).pow(size)
    else:
        # log of C(others - k, size) / C(others, size)
        logs = _log_choose(others - k, size) - _log_choose(torch.full_like(k, others), size)
        unlabeled = torch.where(others - k >= size, logs.exp(), 0.0)
    return float((weights * (1.0 - unlabeled)).sum())


def _log_choose(n: Tensor, k: int) -> Tensor:
    n = n.clamp(min=k)
    return torch.lgamma(n + 1) - torch.lgamma(n - k + 1)


def _bisect(near: Tensor, weights: Tensor, far: float, size: int, others: int) -> float:
    low, high = -1.0, 1.0 + 1e-9
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if rate_at(near, weights, middle, size, others) <= far:
            high = middle
        else:
            low = middle
    return high


def _score_classes(items: ClassItems, shots: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the similarity of probes to the nearest of `shots` items of every class (P, n), and weights of probes."""
    per_class = max(1, min(_PROBES_PER_CLASS, _MAX_PROBES // items.classes))
    enrolled, probes, labels = [], [], []
    for number in range(items.classes):
        rows = items.members(number)
        order = torch.randperm(len(rows), generator=generator)
        enrolled.append(rows[order[torch.arange(shots) % len(rows)]])  # repeated where there are fewer
        probes.append(rows[order[:per_class]])
        labels.append(torch.full((min(per_class, len(rows)),), number))
    label = torch.cat(labels)
    scores = torch.cat([(part @ torch.cat(enrolled).T).view(len(part), -1, shots).amax(dim=2) for part in probes])
    scores[torch.arange(len(label)), label] = -torch.inf
    weights = 1.0 / torch.bincount(label)[label].double() / items.classes
    return scores, weights
