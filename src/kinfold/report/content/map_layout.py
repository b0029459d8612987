"""Which points a map shows, and where: t-SNE (van der Maaten, 2014, Barnes-Hut), made by scikit-learn."""

from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from kinfold.data.items import Array
from kinfold.seeding import derive_generator

PERPLEXITY = 30.0
SMALLEST = 5  # points below which there is nothing to arrange
_SAMPLE = 201  # what the generator is derived for


def has_tsne() -> bool:
    return find_spec("sklearn") is not None


def sample_items(labels: Tensor, count: int) -> Tensor:
    """Positions (count,) in ascending order, from every class in proportion to its size; all where there are fewer.

    Within a class every n-th item of a random order is taken, from a random start, so that every item has the same
    chance, and classes of equal size differ by one at most.

    >>> [*torch.bincount(torch.tensor([0] * 60 + [1] * 30)[sample(torch.tensor([0] * 60 + [1] * 30), 9)])]
    [tensor(6), tensor(3)]
    """
    total = labels.shape[0]
    if count >= total:
        return torch.arange(total)
    source = derive_generator(0, _SAMPLE)
    order = torch.randperm(total, generator=source)
    order = order[torch.argsort(labels[order], stable=True)]  # class by class, each in random order
    # one walk over all classes with equal steps and a random start
    start = float(torch.rand((), generator=source, dtype=torch.float64))
    steps = (torch.arange(count, dtype=torch.float64) + start) * (total / count)
    return order[steps.long().clamp(max=total - 1)].sort().values


def compute_tsne(rows: Tensor) -> Array:
    """(N, 2) between 0 and 1 with one scale for both axes; `rows` as their distance compares them."""
    points = np.ascontiguousarray(rows.double().numpy())
    count = len(points)
    spread = points.std(axis=0).max() if count else 0.0
    if count < SMALLEST or spread < 1e-9:
        return _in_a_ring(count)
    if points.shape[1] == 1:
        points = np.hstack([points, np.zeros_like(points)])
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (count - 1) / 3)
    found = TSNE(2, perplexity=perplexity, init="pca", random_state=0, method="barnes_hut").fit_transform(points)
    low, high = found.min(axis=0), found.max(axis=0)
    size = float((high - low).max())
    if not np.isfinite(size) or size == 0.0:
        return _in_a_ring(count)
    return np.asarray(0.5 + (found - (low + high) / 2) / size, dtype=np.float32)


def _in_a_ring(count: int) -> Array:
    """Where nothing is known of how points lie, they are only kept apart."""
    angle = 2 * np.pi * np.arange(count) / max(1, count)
    return np.stack([0.5 + 0.4 * np.cos(angle), 0.5 + 0.4 * np.sin(angle)], axis=1).astype(np.float32)
