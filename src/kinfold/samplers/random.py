"""Items in random order, regardless of their class: the batches of an ordinary shuffled data loader."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.samplers.balanced_draws import draw_in_turns
from kinfold.samplers.checks import check_integer
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator


class RandomSampler(Sampler):
    """Batches of random items: every item comes once before any comes twice, and never twice in a batch.

    Classes come as often as they have items, and an item may have no positive in its batch: use it for losses with
    proxies.

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes.
        batches: Batches per epoch; by default N // batch_size, so that up to batch_size - 1 items, other ones in every
            epoch, are left out.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Process rank and world size; those of torch.distributed if left out. See `Sampler`.

    Raises:
        ValueError: `batch_size` is larger than the number of items, or an option is invalid.

    Examples:
        >>> len(RandomSampler([0, 1, 1, 2, 2], batch_size=2))
        2
    """

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        classes = ClassIndex.from_labels(labels)
        items = classes.count_items()
        check_integer(1, batch_size=batch_size)
        if batch_size > items:
            raise ValueError(f"batch_size={batch_size} is more than the {items} items; lower it to at most {items}")
        super().__init__(
            classes, batch_size, items // batch_size if batches is None else batches, seed, rank, world_size
        )

    def plan(self, epoch: int) -> Tensor:
        sizes = torch.tensor([len(self.classes.items)])
        visits = torch.zeros(self.batches, dtype=torch.int64)
        members = draw_in_turns(
            sizes, visits, torch.full_like(visits, self.batch_size), derive_batch_generator(self.seed, epoch)
        )
        return members.view(self.batches, self.batch_size)
