"""Which items a map shows, and where."""

import numpy as np
import torch
from torch import Tensor

from kinfold.data.items import Array
from kinfold.seeding import derive_generator
from kinfold.tsne import compute_tsne

MIN_POINTS = 5  # below this count, t-SNE has nothing to arrange
_SAMPLE_STREAM = 201  # of the random generator


def sample_items(labels: Tensor, count: int) -> Tensor:
    """Choose items from every class in proportion to its size.

    Within a class, every n-th item of a random order is taken, from a random start. Every item has the same chance,
    and classes of equal size differ by one at most.

    Args:
        labels: (N,)
        count: How many items to choose; all of them if there are fewer.

    Returns:
        Positions (min(count, N),) in ascending order.

    Examples:
        >>> labels = torch.tensor([0] * 60 + [1] * 30)
        >>> torch.bincount(labels[sample_items(labels, 9)]).tolist()
        [6, 3]
    """
    total = labels.shape[0]
    if count >= total:
        return torch.arange(total)
    generator = derive_generator(0, _SAMPLE_STREAM)
    order = torch.randperm(total, generator=generator)
    order = order[torch.argsort(labels[order], stable=True)]  # class by class, each in random order
    # equal steps over all classes, from a random start
    start = float(torch.rand((), generator=generator, dtype=torch.float64))
    steps = (torch.arange(count, dtype=torch.float64) + start) * (total / count)
    return order[steps.long().clamp(max=total - 1)].sort().values


def compute_layout(rows: Tensor) -> Array:
    """Coordinates (N, 2) between 0 and 1 by t-SNE, with one scale for both axes.

    Args:
        rows: Embeddings (N, d), normalized if their similarity is the cosine.
    """
    count = len(rows)
    spread = rows.double().std(dim=0, correction=0).max() if count else 0.0
    if count < MIN_POINTS or spread < 1e-9:
        return _arrange_in_ring(count)
    points = compute_tsne(torch.hstack([rows, torch.zeros_like(rows)]) if rows.shape[1] == 1 else rows)
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max())
    if not np.isfinite(size) or size == 0.0:
        return _arrange_in_ring(count)
    return np.asarray(0.5 + (points - (low + high) / 2) / size, dtype=np.float32)


def _arrange_in_ring(count: int) -> Array:
    """Coordinates for points whose distances say nothing."""
    angle = 2 * np.pi * np.arange(count) / max(1, count)
    return np.stack([0.5 + 0.4 * np.cos(angle), 0.5 + 0.4 * np.sin(angle)], axis=1).astype(np.float32)
