"""Moments of features and of their classes, summed over chunks of rows, so that memory does not grow with the rows."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

_ROWS = 8192  # rows per chunk in float64


@dataclass(eq=False)
class Moments:
    """Count, mean and scatter of rows, in all and by class, float64.

    Sums are taken of rows minus `shift`, by default the mean of the first chunk, so that a large common mean costs no
    digits.
    Memory is width^2 + classes x width numbers, whatever the number of rows.

    Args:
        width: Columns of the rows.
        classes: Number of classes; 0 for rows without labels.
        shift: Subtracted from rows before they are summed, (width,); the mean of the first chunk if left out.

    Examples:
        >>> moments = Moments(2, classes=2)
        >>> for chunk in torch.split(torch.tensor([[1.0, 0.0], [3.0, 0.0], [7.0, 4.0]]), 2):
        ...     moments.update(chunk, torch.tensor([0, 0, 1])[: len(chunk)]) is moments
        True
        True
        >>> moments.count, moments.mean
        (3, tensor([3.6667, 1.3333], dtype=torch.float64))
    """

    width: int
    classes: int = 0
    shift: Tensor | None = None

    def __post_init__(self) -> None:
        self.count = 0
        self.sums = torch.zeros(self.width, dtype=torch.float64)
        self.products = torch.zeros(self.width, self.width, dtype=torch.float64)
        self.class_sums = torch.zeros(self.classes, self.width, dtype=torch.float64)
        self.class_counts = torch.zeros(self.classes, dtype=torch.int64)

    def update(self, rows: Tensor, labels: Tensor | None = None) -> Self:
        """Add rows (n, width) with their classes 0..C-1, (n,).

        Raises:
            ValueError: A shape, a label or a value is wrong.
        """
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ValueError(f"expected rows of shape (n, {self.width}), got {tuple(rows.shape)}")
        if (labels is None) != (self.classes == 0):
            raise ValueError("give labels exactly where the moments were created with a number of classes")
        if labels is not None:
            if labels.shape != (len(rows),):
                raise ValueError(f"expected {len(rows)} labels, got {tuple(labels.shape)}")
            if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= self.classes):
                raise ValueError(f"labels must lie in 0..{self.classes - 1}; kinfold.pairs.reindex numbers them")
            labels = labels.to(rows.device)
        for start in range(0, len(rows), _ROWS):
            chunk = rows[start : start + _ROWS].detach().to("cpu", torch.float64)
            self._add(chunk, None if labels is None else labels[start : start + _ROWS].cpu())
        return self

    def _add(self, chunk: Tensor, labels: Tensor | None) -> None:
        if self.shift is None:
            self.shift = chunk.mean(dim=0)
        chunk = chunk - self.shift
        sums = chunk.sum(dim=0)
        if not sums.isfinite().all():
            raise ValueError("the features have entries that are not finite")
        self.count += len(chunk)
        self.sums += sums
        self.products.addmm_(chunk.T, chunk)
        if labels is not None:
            self.class_sums.index_add_(0, labels, chunk)
            self.class_counts += torch.bincount(labels, minlength=self.classes)

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of the rows of both, which must have the same shape and the same shift.

        Raises:
            ValueError: They have not.
        """
        same = (self.width, self.classes) == (other.width, other.classes)
        if not same or self.shift is None or other.shift is None or not torch.equal(self.shift, other.shift):
            raise ValueError("moments are merged where width, number of classes and shift are the same: give a shift")
        merged = Moments(self.width, self.classes, self.shift)
        merged.count = self.count + other.count
        for name in ("sums", "products", "class_sums", "class_counts"):
            setattr(merged, name, getattr(self, name) + getattr(other, name))
        return merged

    @property
    def mean(self) -> Tensor:
        """Mean of all rows, (width,)."""
        if self.shift is None:
            raise ValueError("there are no rows yet")
        return self.shift + self.sums / self.count

    def total_covariance(self) -> Tensor:
        """Covariance of all rows around their mean, divided by their number, (width, width)."""
        if self.count < 2:
            raise ValueError(f"a covariance needs two rows, got {self.count}")
        mean = self.sums / self.count
        return _symmetrize(self.products / self.count - torch.outer(mean, mean))

    def between_covariance(self) -> Tensor:
        """Covariance of the class means, each weighted by the share of its rows, (width, width)."""
        return _symmetrize(self.weighted_class_means().T @ self.weighted_class_means())

    def within_covariance(self) -> Tensor:
        """Covariance of the rows around the mean of their class, (width, width)."""
        return self.total_covariance() - self.between_covariance()

    def weighted_class_means(self) -> Tensor:
        """Class means around the mean of all rows, times the square root of their share of the rows, (C, width)."""
        if not self.classes:
            raise ValueError("these moments have no classes: create them with a number of classes, and give labels")
        present = self.class_counts > 0
        counts = self.class_counts[present].double()[:, None]
        return (self.class_sums[present] / counts - self.sums / self.count) * (counts / self.count).sqrt()


def _symmetrize(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2


def compute_moments(features: Tensor, labels: Tensor | None = None) -> Moments:
    """Compute the moments of features (N, width) with their classes 0..C-1, (N,)."""
    if features.ndim != 2 or len(features) < 2:
        raise ValueError(f"expected features of shape (N, width) with N >= 2, got {tuple(features.shape)}")
    classes = 0 if labels is None else int(labels.max()) + 1
    return Moments(features.shape[1], classes).update(features, labels)
