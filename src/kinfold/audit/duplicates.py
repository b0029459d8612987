"""Exact and near duplicates among items, from features and from pixels."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from kinfold.data.items import Array
from kinfold.files.checksums import compute_sha256
from kinfold.metrics import neighbors

FEATURE_SIMILARITY = 0.995  # cosine of features above which two items are near duplicates
PIXEL_SIMILARITY = 0.995  # the same for small gray images without their mean
THUMBNAIL = 16  # pixels of a small gray image
_NEIGHBORS = 5


@dataclass(frozen=True)
class DuplicatePair:
    """Two items that are the same, or nearly.

    Args:
        first, second: Positions, first < second.
        similarity: 1 for exact duplicates.
        exact: Whether all bytes, or numbers, are equal.
    """

    first: int
    second: int
    similarity: float
    exact: bool


def find_equal(digests: list[str]) -> Iterator[DuplicatePair]:
    """Yield each item whose digest occurred before, with the first item of that digest; empty digests are ignored."""
    first: dict[str, int] = {}
    for position, digest in enumerate(digests):
        if digest and first.setdefault(digest, position) != position:
            yield DuplicatePair(first[digest], position, 1.0, True)


def find_near(rows: Tensor, least: float, usable: Tensor | None = None) -> Iterator[DuplicatePair]:
    """Yield pairs of rows with a cosine of at least `least`, among the five nearest rows of each.

    Args:
        rows: (N, d).
        least: The cosine.
        usable: Which rows are compared, boolean (N,).
    """
    positions = torch.arange(len(rows)) if usable is None else usable.nonzero().squeeze(1)
    if len(positions) < 2:
        return
    values, indices = neighbors(rows[positions], k=_NEIGHBORS)
    for row, column in (values >= least).nonzero().tolist():
        i, j = int(positions[row]), int(positions[int(indices[row, column])])
        if i < j or not bool((indices[indices[row, column]] == row).any()):  # once, from either side
            yield DuplicatePair(min(i, j), max(i, j), float(values[row, column]), False)


def digest_row(row: Array) -> str:
    """Return a digest of the numbers of a row, or of the pixels of an image."""
    return compute_sha256(f"{row.shape} {row.dtype}".encode() + np.ascontiguousarray(row).tobytes())


def shrink(image: Image.Image) -> Tensor:
    """Return a small gray image without its mean, (THUMBNAIL^2,) float32; zeros for an image of one color."""
    small = image.convert("L").resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    values = torch.from_numpy(np.asarray(small, dtype=np.float32).reshape(-1).copy())
    return values - values.mean()
