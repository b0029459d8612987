"""The pool: items of many classes, from which a batch is chosen and which stands for the whole dataset."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.samplers.balanced_draws import draw_distinct, draw_with_replacement
from kinfold.samplers.class_index import ClassIndex


@dataclass(frozen=True)
class Pool:
    """Items of a pool, sorted by class: the j-th class has `counts[j]` items, which start at `items[starts[j]]`.

    Attributes:
        items: Positions in the labels, (P,).
        classes: The distinct classes, (J,).
        counts: Number of items of each class, (J,).
    """

    items: Tensor
    classes: Tensor
    counts: Tensor

    @property
    def starts(self) -> Tensor:
        return self.counts.cumsum(0) - self.counts

    @property
    def class_of(self) -> Tensor:
        """Class of every item, (P,)."""
        return self.classes.repeat_interleave(self.counts)


def draw_pool(classes: ClassIndex, size: int, per_class: int, due: Tensor, generator: torch.Generator) -> Pool:
    """Draw `per_class` items of each of size / per_class classes: due classes first, otherwise at random.

    If there are fewer classes, each gives several times `per_class` items. Items are distinct, except in classes with
    fewer than `per_class` items. A pool that is larger than the dataset is the dataset.
    """
    units = size // per_class
    drawn = min(units, len(classes))
    chance = torch.rand(len(classes), generator=generator, dtype=torch.float64)
    chosen = (chance - due.double()).topk(drawn, largest=False).indices
    share = torch.full((drawn,), units // drawn)
    share[: units % drawn] += 1
    sizes = classes.sizes[chosen]
    counts = torch.where(sizes >= per_class, torch.minimum(share * per_class, sizes), per_class)
    members = draw_distinct(sizes, counts, generator)
    return Pool(classes.take(chosen.repeat_interleave(counts), members), chosen, counts)


def draw_study_pool(classes: ClassIndex, size: int, per_class: int, generator: torch.Generator) -> Pool:
    """Draw size / per_class classes and `per_class` items of each, all independently, as Roth et al. did."""
    drawn = draw_with_replacement(torch.full((size // per_class,), len(classes)), generator)
    chosen, units = torch.unique(drawn, return_counts=True)
    counts = units * per_class
    owner = chosen.repeat_interleave(counts)
    return Pool(classes.take(owner, draw_with_replacement(classes.sizes[owner], generator)), chosen, counts)
