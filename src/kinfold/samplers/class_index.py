"""The items of every class, laid out so that many classes can be looked up at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels, reindex


@dataclass(frozen=True)
class ClassIndex:
    """Items sorted by class: class c has `sizes[c]` items, which start at `items[starts[c]]`.

    Attributes:
        items: Positions in the labels, int64 (N,).
        starts, sizes: (C,).
    """

    items: Tensor
    starts: Tensor
    sizes: Tensor

    @staticmethod
    def from_labels(labels: Labels) -> "ClassIndex":
        """Group items by label; labels are integers or strings.

        Examples:
            >>> ClassIndex.from_labels(["wren", "crow", "wren"]).items
            tensor([1, 0, 2])
        """
        numbers, classes = reindex(labels)
        if not classes:
            raise ValueError("labels are empty: a sampler needs the label of every item it may draw")
        numbers = numbers.cpu()
        sizes = torch.bincount(numbers, minlength=len(classes))
        return ClassIndex(torch.argsort(numbers, stable=True), sizes.cumsum(0) - sizes, sizes)

    def __len__(self) -> int:
        return self.sizes.shape[0]

    def count_items(self) -> int:
        """Return the number of items of all classes."""
        return int(self.sizes.sum())

    def keep_at_least(self, size: int) -> "ClassIndex":
        """Return the classes with at least `size` items."""
        keep = self.sizes >= size
        return ClassIndex(self.items, self.starts[keep], self.sizes[keep])

    def take(self, classes: Tensor, positions: Tensor) -> Tensor:
        """Return the items at these positions within these classes; both tensors have the same shape."""
        return self.items[self.starts[classes] + positions]
