"""Items in random order, whatever their class: the batches of an ordinary shuffled data loader."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.samplers.balanced_draws import draw_in_turns
from kinfold.samplers.checks import check_integer
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator


class RandomSampler(Sampler):
    """Every item once before any comes twice, and never twice in a batch. Classes come as often as they have items.

    An epoch is N // batch_size batches (`batches` for another number): up to batch_size - 1 items, others in every
    epoch, wait for the next one. Items may find no kin in their batch: use it for losses with proxies.

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
        ranks: int | None = None,
    ) -> None:
        classes = ClassIndex.from_labels(labels)
        items = classes.count_items()
        check_integer(1, batch_size=batch_size)
        if batch_size > items:
            raise ValueError(f"batch_size={batch_size} is more than the {items} items; lower it to at most {items}")
        super().__init__(classes, batch_size, items // batch_size if batches is None else batches, seed, rank, ranks)

    def plan(self, epoch: int) -> Tensor:
        items = torch.tensor([len(self.classes.items)])
        visits = torch.zeros(self.batches, dtype=torch.int64)
        dealt = draw_in_turns(
            items, visits, torch.full_like(visits, self.batch_size), derive_batch_generator(self.seed, epoch)
        )
        return dealt.view(self.batches, self.batch_size)
