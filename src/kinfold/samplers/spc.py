"""SPC-n: n samples per class (Roth et al., ICML 2020)."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.samplers.balanced_draws import draw_in_turns, draw_with_replacement
from kinfold.samplers.checks import resolve_batches, select_classes
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator


class SPCSampler(Sampler):
    """Batches with `per_class` items of each of batch_size / per_class classes (Roth et al., ICML 2020).

    Classes take turns, and so do the items of a class: each comes once before any comes twice in an epoch.

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes. A multiple of `per_class`.
        per_class: Items per class in a batch.
        replacement: What may repeat within a batch. "when-needed": items of a class that has fewer than `per_class`, as
            evenly as possible. "never": nothing; classes with fewer than `per_class` items are left out. "study":
            classes and items are drawn independently, as in the code of Roth et al.; an item may be its own positive.
        batches: Batches per epoch; by default N // batch_size, or more if not all classes would come.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Process rank and world size; those of torch.distributed if left out. See `Sampler`.

    Raises:
        ValueError: An option is invalid, or the labels have too few classes for a batch.

    Examples:
        >>> sampler = SPCSampler(["a", "b", "b", "a", "c"], batch_size=4, per_class=2, replacement="never")
        >>> [sorted(batch) for batch in sampler]
        [[0, 1, 2, 3]]
    """

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        per_class: int = 2,
        replacement: str = "when-needed",
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        classes = select_classes(ClassIndex.from_labels(labels), batch_size, per_class, replacement)
        self.per_class = per_class
        self.replacement = replacement
        batches = resolve_batches(batches, classes, batch_size, batch_size // per_class)
        super().__init__(classes, batch_size, batches, seed, rank, world_size)

    def plan(self, epoch: int) -> Tensor:
        generator = derive_batch_generator(self.seed, epoch)
        groups = self.batch_size // self.per_class
        if self.replacement == "study":
            turns = draw_with_replacement(torch.full((self.batches * groups,), len(self.classes)), generator)
            turns = turns.repeat_interleave(self.per_class)
            members = draw_with_replacement(self.classes.sizes[turns], generator)
        else:
            visits = torch.zeros(self.batches, dtype=torch.int64)
            turns = draw_in_turns(torch.tensor([len(self.classes)]), visits, torch.full_like(visits, groups), generator)
            members = draw_in_turns(self.classes.sizes, turns, torch.full_like(turns, self.per_class), generator)
            turns = turns.repeat_interleave(self.per_class)
        return self.classes.take(turns, members).view(self.batches, self.batch_size)
