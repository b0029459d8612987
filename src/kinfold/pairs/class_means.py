"""Means of classes on the sphere, and the mean squared distances of their items that follow from them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.pairs.measures import normalize


@dataclass(frozen=True)
class ClassMeans:
    """Means of the unit vectors of every class.

    The mean squared distance of the items of two classes is 2 - 2 <mean, mean>: no pair of items is needed.

    Attributes:
        means: (C, d), float64.
        counts: Items of every class, (C,).
    """

    means: Tensor
    counts: Tensor

    @staticmethod
    def from_embeddings(embeddings: Tensor, labels: Tensor, num_classes: int) -> "ClassMeans":
        """Compute the means.

        Args:
            embeddings: (N, d); they are normalized here.
            labels: Integers in 0..num_classes-1, (N,).
            num_classes: C.

        Examples:
            >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), torch.tensor([0, 0, 1])
            >>> means = ClassMeans.from_embeddings(x, y, 2)
            >>> means.measure_spreads(), means.measure_distances(torch.tensor([0]))
            (tensor([2., 0.], dtype=torch.float64), tensor([[1., 1.]], dtype=torch.float64))
        """
        rows, codes = normalize(embeddings.detach().cpu().double()), labels.detach().cpu().long()
        counts = torch.bincount(codes, minlength=num_classes)
        sums = torch.zeros(num_classes, rows.shape[1], dtype=rows.dtype).index_add_(0, codes, rows)
        return ClassMeans(sums / counts.clamp(min=1)[:, None], counts)

    def measure_distances(self, classes: Tensor) -> Tensor:
        """Return the mean squared distance of the items of these classes (K,) from those of every class, (K, C).

        For a class and itself the pairs of an item with itself count too.
        """
        return (2.0 - 2.0 * self.means[classes] @ self.means.T).clamp(min=0.0)

    def measure_spreads(self) -> Tensor:
        """Return the mean squared distance of two different items of each class, (C,); 0 for a class of one."""
        pairs = (self.counts * (self.counts - 1)).clamp(min=1)
        squared = 2.0 - 2.0 * self.means.square().sum(dim=1)
        spreads: Tensor = squared.clamp(min=0.0) * self.counts.square() / pairs
        return torch.where(self.counts > 1, spreads, 0.0)
