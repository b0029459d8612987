"""The rows of each class."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClassRows:
    """Which rows belong to each class.

    Attributes:
        index: Rows of each class, (C, M), where M is the size of the largest class.
        exists: Which of them exist, (C, M).
        is_regular: Whether the rows are sorted by class and all classes have M rows.

    Examples:
        >>> classes = ClassRows.from_labels(torch.tensor([7, 3, 7]))
        >>> classes.split(torch.tensor([0.7, 0.3, 0.5]))
        tensor([[0.3000, 0.7000],
                [0.7000, 0.5000]])
        >>> classes.exists
        tensor([[ True, False],
                [ True,  True]])
    """

    index: Tensor
    exists: Tensor
    is_regular: bool = False

    @classmethod
    def from_labels(cls, labels: Tensor) -> "ClassRows":
        """Collect the rows with equal labels (B,); classes come in the order of their labels."""
        ordered, order = labels.sort(stable=True)
        _, sizes = torch.unique_consecutive(ordered, return_counts=True)
        exists = torch.arange(int(sizes.max()), device=labels.device) < sizes[:, None]
        index = torch.zeros(exists.shape, dtype=torch.int64, device=labels.device)
        index[exists] = order
        is_sorted = exists.numel() == labels.shape[0] and bool((labels[1:] >= labels[:-1]).all())
        return cls(index, exists, is_sorted)

    def split(self, values: Tensor) -> Tensor:
        """Arrange rows (B, ...) by class, (C, M, ...); places without a row hold copies of row 0."""
        if self.is_regular:
            return values.reshape(*self.index.shape, *values.shape[1:])
        return values[self.index]

    def join(self, values: Tensor) -> Tensor:
        """Arrange (C, M, ...) as rows (B, ...) again: the reverse of `split`."""
        if self.is_regular:
            return values.flatten(0, 1)
        joined = values[self.exists]
        return joined.new_zeros(joined.shape).index_copy(0, self.index[self.exists], joined)


def list_first_rows(labels: Tensor) -> Tensor:
    """Return for each label (B,) the first row that has it, (B,).

    Examples:
        >>> list_first_rows(torch.tensor([7, 3, 7]))
        tensor([0, 1, 0])
    """
    ordered, order = labels.sort(stable=True)
    return order[torch.searchsorted(ordered, labels)]
