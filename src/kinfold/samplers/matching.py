"""Choice of the candidate batch that is most like a pool (Roth et al., ICML 2020)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.samplers.checks import check_integer
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.class_turns import ClassTurns
from kinfold.samplers.pool import Pool, draw_pool, draw_study_pool
from kinfold.seeding import derive_batch_generator

# embeddings of the pool (P, D) and candidates (M, B) as rows of it -> the cost of each candidate (M,)
Cost = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CandidateMatcher:
    """Draws pools and candidate batches, and chooses the cheapest candidate.

    Attributes:
        batch_size: B, items per batch.
        per_class: Items per class in a batch.
        pool: P, items per pool.
        candidates: M, candidate batches per pool.
        replacement: As in `SPCSampler`.
    """

    batch_size: int
    per_class: int
    pool: int
    candidates: int
    replacement: str

    def __post_init__(self) -> None:
        check_integer(1, pool=self.pool, candidates=self.candidates)
        check_pool_size(self.pool, self.batch_size)

    def choose_batches(
        self, classes: ClassIndex, embeddings: Tensor, cost: Cost, batches: int, seed: int, epoch: int
    ) -> Tensor:
        """Return an epoch (batches, batch_size): for every batch, the cheapest candidate of a new pool."""
        turns = ClassTurns(len(classes))
        chosen = []
        for number in range(batches):
            pool, candidates = self.draw(classes, turns.due, derive_batch_generator(seed, epoch, number))
            best = candidates[cost(embeddings[pool.items].double(), candidates).argmin()]
            turns.mark_used(pool.class_of[best])
            chosen.append(pool.items[best])
        return torch.stack(chosen)

    def draw(self, classes: ClassIndex, due: Tensor, generator: torch.Generator) -> tuple[Pool, Tensor]:
        """Draw a pool, and candidates (M, B) as positions in it."""
        study = self.replacement == "study"
        if study:
            pool = draw_study_pool(classes, self.pool, self.per_class, generator)
        else:
            pool = draw_pool(classes, self.pool, self.per_class, due, generator)
        groups = self.batch_size // self.per_class
        if study:
            which = torch.randint(len(pool.classes), (self.candidates, groups), generator=generator)
        else:
            # due classes are in every candidate before any other
            chance = torch.rand(self.candidates, len(pool.classes), generator=generator, dtype=torch.float64)
            which = (chance - due[pool.classes].double()).topk(groups, dim=1, largest=False).indices
        # `per_class` distinct positions in each class: those with the smallest random keys
        keys = torch.rand(*which.shape, int(pool.counts.max()), generator=generator)  # (M, groups, largest class)
        absent = torch.arange(keys.shape[2]) >= pool.counts[which][:, :, None]
        positions = keys.masked_fill_(absent, 2.0).topk(self.per_class, dim=2, largest=False).indices
        return pool, (pool.starts[which][:, :, None] + positions).flatten(1)


def check_pool_size(pool: int, batch_size: int) -> None:
    """Raise a ValueError if a pool cannot hold a batch."""
    if pool < batch_size:
        raise ValueError(f"pool={pool} is smaller than batch_size={batch_size}; raise it, 512 is usual")
