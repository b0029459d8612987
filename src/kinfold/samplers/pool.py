"""The pool: some items of many classes, from which a batch is chosen and which stands for the whole set."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.samplers.balanced_draws import draw_distinct, draw_with_replacement
from kinfold.samplers.class_index import ClassIndex


@dataclass(frozen=True)
class Pool:
    """Items of a pool, class by class: class number j of the pool has the `counts[j]` items from `starts[j]` on."""

    items: Tensor  # (P,)
    classes: Tensor  # (J,) distinct
    counts: Tensor  # (J,)

    @property
    def starts(self) -> Tensor:
        return self.counts.cumsum(0) - self.counts

    @property
    def class_of(self) -> Tensor:
        """The class of every item, (P,)."""
        return self.classes.repeat_interleave(self.counts)


def draw_pool(classes: ClassIndex, size: int, unit: int, due: Tensor, source: torch.Generator) -> Pool:
    """`unit` items of each of size / unit classes: those that are due first, otherwise at random.

    Where there are fewer classes each gives several units. Items are distinct, but for classes with fewer than `unit`;
    a pool that is larger than the set is the set.
    """
    units = size // unit
    drawn = min(units, len(classes))
    chance = torch.rand(len(classes), generator=source, dtype=torch.float64)
    chosen = (chance - due.double()).topk(drawn, largest=False).indices
    share = torch.full((drawn,), units // drawn)
    share[: units % drawn] += 1
    sizes = classes.sizes[chosen]
    counts = torch.where(sizes >= unit, torch.minimum(share * unit, sizes), unit)
    cards = draw_distinct(sizes, counts, source)
    return Pool(classes.take(chosen.repeat_interleave(counts), cards), chosen, counts)


def draw_study_pool(classes: ClassIndex, size: int, unit: int, source: torch.Generator) -> Pool:
    """size / unit times a class, and `unit` items of it, all of them independent draws."""
    drawn = draw_with_replacement(torch.full((size // unit,), len(classes)), source)
    chosen, units = torch.unique(drawn, return_counts=True)
    counts = units * unit
    owner = chosen.repeat_interleave(counts)
    return Pool(classes.take(owner, draw_with_replacement(classes.sizes[owner], source)), chosen, counts)
