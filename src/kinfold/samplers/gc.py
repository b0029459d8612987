"""GC: a greedy coreset, items that cover a larger pool (Roth et al., ICML 2020)."""

import math

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.samplers.balanced_draws import draw_distinct, draw_with_replacement
from kinfold.samplers.checks import check_integer, resolve_batches, select_classes
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.class_turns import ClassTurns
from kinfold.samplers.matching import check_pool_size
from kinfold.samplers.pool import draw_pool, draw_study_pool
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator


class GCSampler(Sampler):
    """From a pool the first item at random, then again and again the one farthest from all chosen ones (k-centre); each
    brings `per_class` - 1 random items of its class.

    Classes take turns as for "spc", so that the farthest item is sought among classes that are due and not yet in the
    batch. `soften` > 0 takes a random one among that share of the pool that lies farthest (the study tried 0.03).
    `replacement="study"`: the farthest of the whole pool, classes and mates may repeat. Needs embeddings.
    """

    needs_embeddings = True

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        per_class: int = 2,
        pool: int = 512,
        soften: float = 0.0,
        replacement: str = "when-needed",
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
    ) -> None:
        classes = select_classes(ClassIndex.from_labels(labels), batch_size, per_class, replacement)
        check_integer(1, pool=pool)
        check_pool_size(pool, batch_size)
        if not 0.0 <= soften < 1.0:
            raise ValueError(f"soften is a share of the pool in [0, 1), got {soften}")
        self.per_class = per_class
        self.pool = pool
        self.soften = soften
        self.replacement = replacement
        batches = resolve_batches(batches, classes, batch_size, batch_size // per_class)
        super().__init__(classes, batch_size, batches, seed, rank, ranks)

    def plan(self, epoch: int) -> Tensor:
        assert self.bank is not None
        table, turns, study = self.bank.read_all(), ClassTurns(len(self.classes)), self.replacement == "study"
        chosen = []
        for number in range(self.batches):
            source = derive_batch_generator(self.seed, epoch, number)
            if study:
                pool = draw_study_pool(self.classes, self.pool, 1, source)
            else:
                pool = draw_pool(self.classes, self.pool, 1, turns.due, source)
            points, kind = table[pool.items].double(), pool.class_of
            count, share = self.batch_size // self.per_class, math.ceil(self.soften * len(points))
            kinds, due = (None, None) if study else (kind, turns.due[kind])
            picked = select_centers(points, count, source, kinds, due, share)
            turns.mark_used(kind[picked])
            chosen.append(self._with_mates(pool.items[picked], kind[picked], source))
        return torch.stack(chosen)

    def _with_mates(self, items: Tensor, kinds: Tensor, source: torch.Generator) -> Tensor:
        """Each item followed by per_class - 1 of its class, (batch_size,)."""
        owner = kinds[:, None].expand(-1, self.per_class)
        if self.replacement == "study":
            mates = self.classes.take(owner, draw_with_replacement(self.classes.sizes[owner], source))
        else:
            rows = torch.arange(len(items))
            cards = draw_distinct(self.classes.sizes[kinds], torch.full_like(rows, self.per_class), source)
            mates = self.classes.take(owner, cards.view_as(owner))
            # the chosen item changes places with the first; where it was not dealt it takes the first one's place
            mates[rows, (mates == items[:, None]).int().argmax(dim=1)] = mates[:, 0].clone()
        mates[:, 0] = items
        return mates.flatten()


def select_centers(
    points: Tensor,
    count: int,
    source: torch.Generator,
    kinds: Tensor | None = None,
    due: Tensor | None = None,
    share: int = 0,
) -> Tensor:
    """Rows (count,) of points (P, D): one at random, then always the one whose nearest chosen row is farthest.

    With `kinds` (P,) a kind is taken only once; rows that are `due` (P,) come before all others. With `share` > 1
    each next row is drawn from so many of the farthest.

    >>> line = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> select_centers(line, 2, torch.Generator(), due=torch.tensor([True, False, False, False]))
    tensor([0, 3])
    """
    squared = torch.cdist(points, points).square_()
    nearest = torch.full((points.shape[0],), torch.inf, dtype=points.dtype)
    free = torch.ones(points.shape[0], dtype=torch.bool)
    picked: list[int] = []
    for _ in range(count):
        able = free if due is None or not bool((free & due).any()) else free & due
        score = nearest.masked_fill(~able, -1.0)
        if not picked:
            rows = able.nonzero().flatten()
            row = int(rows[torch.randint(len(rows), (1,), generator=source)])
        elif share > 1:
            rows = score.topk(min(share, int(able.sum()))).indices
            row = int(rows[torch.randint(len(rows), (1,), generator=source)])
        else:
            row = int(score.argmax())
        picked.append(row)
        nearest = torch.minimum(nearest, squared[row])
        if kinds is None:
            free[row] = False
        else:
            free &= kinds != kinds[row]
    return torch.tensor(picked)
