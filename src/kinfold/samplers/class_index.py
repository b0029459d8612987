"""The items of every class, laid out so that many classes can be looked up at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels, reindex


@dataclass(frozen=True)
class ClassIndex:
    """Items in the order of their classes: class c has the `sizes[c]` items from `starts[c]` on."""

    items: Tensor  # (N,) int64, indices into the labels
    starts: Tensor  # (C,)
    sizes: Tensor  # (C,)

    @staticmethod
    def from_labels(labels: Labels) -> "ClassIndex":
        """Group the items by label; labels are any integers or strings.

        >>> ClassIndex.from_labels(["wren", "crow", "wren"]).items
        tensor([1, 0, 2])
        """
        code, names = reindex(labels)
        if not names:
            raise ValueError("labels are empty: a sampler needs the label of every item it may draw")
        code = code.cpu()
        sizes = torch.bincount(code, minlength=len(names))
        return ClassIndex(torch.argsort(code, stable=True), sizes.cumsum(0) - sizes, sizes)

    def __len__(self) -> int:
        return self.sizes.shape[0]

    def count_items(self) -> int:
        """How many items these classes have together."""
        return int(self.sizes.sum())

    def keep_at_least(self, size: int) -> "ClassIndex":
        """Only the classes with so many items."""
        kept = self.sizes >= size
        return ClassIndex(self.items, self.starts[kept], self.sizes[kept])

    def take(self, classes: Tensor, positions: Tensor) -> Tensor:
        """The items at these positions within these classes; both tensors have one shape."""
        return self.items[self.starts[classes] + positions]
