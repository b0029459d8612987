"""Batches of few coarse classes with many of their classes: negatives that resemble each other (Cakir et al., 2019)."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels, reindex
from kinfold.samplers.balanced_draws import draw_in_turns
from kinfold.samplers.checks import check_integer, resolve_batches
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator


class HierarchicalSampler(Sampler):
    """Batches with `per_class` items of classes of `coarse_per_batch` coarse classes (Cakir et al., CVPR 2019).

    Coarse classes take turns, and so do the classes of a coarse class and the items of a class. A coarse class with too
    few classes gives some of them twice in a batch. A class with too few items repeats them, as evenly as possible.

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes. A multiple of `per_class` times `coarse_per_batch`.
        coarse_labels: Coarse class of each item, (N,), the same for all items of a class. Without them there is one,
            and the batches are those of `spc`.
        per_class: Items per class in a batch.
        coarse_per_batch: Coarse classes in a batch; by default 2, or 1 without coarse labels.
        batches: Batches per epoch; by default N // batch_size, or more if not all classes would come.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Process rank and world size; those of torch.distributed if left out. See `Sampler`.

    Raises:
        ValueError: An option is invalid, a class has two coarse classes, or there are too few of them for a batch.

    Examples:
        >>> labels, families = ["wren", "wren", "tit", "tit", "cod", "cod"], [0, 0, 0, 0, 1, 1]
        >>> sampler = HierarchicalSampler(labels, batch_size=4, coarse_labels=families, coarse_per_batch=1, batches=2)
        >>> sorted(sorted(batch) for batch in sampler)
        [[0, 1, 2, 3], [4, 4, 5, 5]]
    """

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        coarse_labels: Labels | None = None,
        per_class: int = 2,
        coarse_per_batch: int | None = None,
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        classes = ClassIndex.from_labels(labels)
        self.coarse = _group_classes(labels, classes, coarse_labels)
        number = (1 if coarse_labels is None else 2) if coarse_per_batch is None else coarse_per_batch
        check_integer(1, batch_size=batch_size, per_class=per_class, coarse_per_batch=number)
        if number > len(self.coarse):
            raise ValueError(
                f"coarse_per_batch={number}, but there are {len(self.coarse)} coarse classes: lower it"
                + ("" if coarse_labels is not None else ", or pass coarse_labels")
            )
        if batch_size % (per_class * number):
            raise ValueError(
                f"batch_size={batch_size} must be a multiple of per_class={per_class} times coarse_per_batch={number}: "
                f"use a multiple of {per_class * number}"
            )
        self.per_class = per_class
        self.coarse_per_batch = number
        batches = resolve_batches(batches, classes, batch_size, batch_size // per_class)
        super().__init__(classes, batch_size, batches, seed, rank, world_size)

    def plan(self, epoch: int) -> Tensor:
        generator = derive_batch_generator(self.seed, epoch)
        visits = torch.zeros(self.batches, dtype=torch.int64)
        number = torch.full_like(visits, self.coarse_per_batch)
        coarse = draw_in_turns(torch.tensor([len(self.coarse)]), visits, number, generator)
        groups = torch.full_like(coarse, self.batch_size // self.per_class // self.coarse_per_batch)
        position = draw_in_turns(self.coarse.sizes, coarse, groups, generator)
        classes = self.coarse.take(coarse.repeat_interleave(groups), position)
        members = draw_in_turns(self.classes.sizes, classes, torch.full_like(classes, self.per_class), generator)
        items = self.classes.take(classes.repeat_interleave(self.per_class), members)
        return items.view(self.batches, self.batch_size)


def _group_classes(labels: Labels, classes: ClassIndex, coarse_labels: Labels | None) -> ClassIndex:
    """Return the classes of each coarse class."""
    if coarse_labels is None:
        return ClassIndex.from_labels([0] * len(classes))
    of_item, of_coarse = reindex(labels)[0].cpu(), reindex(coarse_labels)[0].cpu()
    if of_item.shape != of_coarse.shape:
        raise ValueError(f"{len(of_item)} labels and {len(of_coarse)} coarse_labels: pass one of each for every item")
    first = of_coarse[classes.items[classes.starts]]  # of the first item of each class
    is_other = first[of_item] != of_coarse
    if bool(is_other.any()):
        item = int(is_other.nonzero()[0])
        raise ValueError(
            f"item {item} has another coarse label than the first item of its class: every class belongs to one"
        )
    return ClassIndex.from_labels(first)
