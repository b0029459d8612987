"""Pairs of items drawn so that every class counts the same, and their similarities."""

from dataclasses import dataclass

import torch
from torch import Tensor

_PAIRS_PER_STEP = 1 << 14


@dataclass(frozen=True)
class ClassItems:
    """Unit vectors, ordered by class.

    Args:
        rows: (N, d) float32, the items of class 0 first.
        labels: Class numbers from 0 without gaps, ascending, (N,).
        starts: The first row of each class, (n,).
        sizes: The number of items of each class, (n,).
    """

    rows: Tensor
    labels: Tensor
    starts: Tensor
    sizes: Tensor

    @staticmethod
    def from_labels(rows: Tensor, labels: Tensor) -> "ClassItems":
        """Order rows by their classes, which are renumbered."""
        classes, numbers = torch.unique(labels, return_inverse=True)
        order = numbers.argsort(stable=True)
        sizes = torch.bincount(numbers, minlength=len(classes))
        return ClassItems(rows[order], numbers[order], sizes.cumsum(0) - sizes, sizes)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.sizes)

    def take(self, classes: Tensor) -> "ClassItems":
        """Return the items of some classes, renumbered in the order of their numbers."""
        keep = torch.isin(self.labels, classes)
        return ClassItems.from_labels(self.rows[keep], self.labels[keep])

    def members(self, number: int) -> Tensor:
        """Return the vectors of a class."""
        start = int(self.starts[number])
        return self.rows[start : start + int(self.sizes[number])]

    def draw_positive(self, count: int, generator: torch.Generator) -> Tensor:
        """Return similarities of `count` pairs: a class with two items or more, then two different items of it."""
        usable = (self.sizes > 1).nonzero().squeeze(1)
        chosen = usable[torch.randint(len(usable), (count,), generator=generator)]
        first = self._draw_below(self.sizes[chosen], generator)
        second = self._draw_below(self.sizes[chosen] - 1, generator)
        second = second + (second >= first)
        return self.score(self.starts[chosen] + first, self.starts[chosen] + second)

    def draw_negative(self, count: int, generator: torch.Generator) -> Tensor:
        """Return similarities of `count` pairs: two different classes, then an item of each."""
        first = torch.randint(self.classes, (count,), generator=generator)
        second = torch.randint(self.classes - 1, (count,), generator=generator)
        second = second + (second >= first)
        left = self.starts[first] + self._draw_below(self.sizes[first], generator)
        right = self.starts[second] + self._draw_below(self.sizes[second], generator)
        return self.score(left, right)

    def score(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the similarities of pairs of rows, (T,) float64."""
        steps = zip(torch.split(left, _PAIRS_PER_STEP), torch.split(right, _PAIRS_PER_STEP), strict=True)
        return torch.cat([(self.rows[i] * self.rows[j]).sum(dim=1) for i, j in steps]).double()

    def match_classes(self, generator: torch.Generator, max_scores: int = 20_000_000) -> tuple[Tensor, Tensor]:
        """Divide the classes into disjoint pairs at random, and return all similarities between the two of each.

        Args:
            generator: Draws the pairs.
            max_scores: About how many similarities to return; of large classes some items are drawn.

        Returns:
            Similarities (T,), and the number of the pair of classes of each (T,).
        """
        order = torch.randperm(self.classes, generator=generator)
        count = self.classes // 2
        most = max(1, int((max_scores / max(1, count)) ** 0.5))
        scores, units = [], []
        for unit, (i, j) in enumerate(order[: 2 * count].reshape(-1, 2).tolist()):
            left, right = (self._draw_rows(self.members(number), most, generator) for number in (i, j))
            values = (left @ right.T).flatten()
            scores.append(values)
            units.append(torch.full((len(values),), unit))
        return torch.cat(scores).double(), torch.cat(units)

    @staticmethod
    def _draw_rows(rows: Tensor, most: int, generator: torch.Generator) -> Tensor:
        return rows if len(rows) <= most else rows[torch.randperm(len(rows), generator=generator)[:most]]

    @staticmethod
    def _draw_below(limits: Tensor, generator: torch.Generator) -> Tensor:
        """Return an integer from 0 to below each limit."""
        shares = torch.rand(len(limits), generator=generator, dtype=torch.float64)
        return (shares * limits).long().clamp(max=limits - 1)
