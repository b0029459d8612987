"""Of several candidate batches from a pool the one that is nearest to the pool (Roth et al., ICML 2020)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.samplers.checks import check_integer
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.class_turns import ClassTurns
from kinfold.samplers.pool import Pool, draw_pool, draw_study_pool
from kinfold.seeding import derive_batch_generator

# points of the pool (P, D) and candidates (M, B) as rows of it -> the cost of each candidate (M,)
Cost = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CandidateMatcher:
    """How pools and candidates are drawn."""

    batch_size: int
    per_class: int
    pool: int
    candidates: int
    replacement: str

    def __post_init__(self) -> None:
        check_integer(1, pool=self.pool, candidates=self.candidates)
        check_pool_size(self.pool, self.batch_size)

    def choose_batches(
        self, classes: ClassIndex, table: Tensor, cost: Cost, batches: int, seed: int, epoch: int
    ) -> Tensor:
        """An epoch (batches, batch_size): the cheapest candidate of a new pool for every batch."""
        turns = ClassTurns(len(classes))
        chosen = []
        for number in range(batches):
            pool, candidates = self.draw(classes, turns.due, derive_batch_generator(seed, epoch, number))
            best = candidates[cost(table[pool.items].double(), candidates).argmin()]
            turns.mark_used(pool.class_of[best])
            chosen.append(pool.items[best])
        return torch.stack(chosen)

    def draw(self, classes: ClassIndex, due: Tensor, source: torch.Generator) -> tuple[Pool, Tensor]:
        """A pool, and candidates (M, B) as positions in it."""
        study = self.replacement == "study"
        if study:
            pool = draw_study_pool(classes, self.pool, self.per_class, source)
        else:
            pool = draw_pool(classes, self.pool, self.per_class, due, source)
        groups = self.batch_size // self.per_class
        if study:
            which = torch.randint(len(pool.classes), (self.candidates, groups), generator=source)
        else:
            # the classes whose turn it is are in every candidate before any other
            chance = torch.rand(self.candidates, len(pool.classes), generator=source, dtype=torch.float64)
            which = (chance - due[pool.classes].double()).topk(groups, dim=1, largest=False).indices
        # `per_class` distinct places of each class: the smallest of random keys
        keys = torch.rand(*which.shape, int(pool.counts.max()), generator=source)
        absent = torch.arange(keys.shape[2]) >= pool.counts[which][:, :, None]
        place = keys.masked_fill_(absent, 2.0).topk(self.per_class, dim=2, largest=False).indices
        return pool, (pool.starts[which][:, :, None] + place).flatten(1)


def check_pool_size(pool: int, batch_size: int) -> None:
    """ValueError for a pool that cannot hold a batch."""
    if pool < batch_size:
        raise ValueError(f"pool={pool} is smaller than batch_size={batch_size}; raise it, 512 is usual")
