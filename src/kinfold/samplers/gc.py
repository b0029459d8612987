"""GC: a greedy coreset, whose items cover a larger pool (Roth et al., ICML 2020)."""

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
    """Greedy coreset (Roth et al., ICML 2020). Needs embeddings.

    The first item of a pool is random; each next one is the item that is farthest from all chosen ones (k-center).
    Every chosen item comes with `per_class` - 1 random items of its class. Classes take turns as in `SPCSampler`: the
    farthest item is chosen among classes that are due and not yet in the batch.

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes. A multiple of `per_class`.
        per_class: Items per class in a batch.
        pool: Items per pool, from which the batch is chosen; at least `batch_size`.
        soften: Draw each next item at random from this fraction of the pool, the items that are farthest. 0 takes the
            farthest; Roth et al. tried 0.03.
        replacement: "when-needed" or "never" as in `SPCSampler`. "study": the farthest item of the whole pool; classes
            and items may repeat.
        batches: Batches per epoch; by default N // batch_size, or more if not all classes would come.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Process rank and world size; those of torch.distributed if left out. See `Sampler`.

    Raises:
        ValueError: An option is invalid, or the labels have too few classes for a batch.
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
        world_size: int | None = None,
    ) -> None:
        classes = select_classes(ClassIndex.from_labels(labels), batch_size, per_class, replacement)
        check_integer(1, pool=pool)
        check_pool_size(pool, batch_size)
        if not 0.0 <= soften < 1.0:
            raise ValueError(f"soften is a fraction of the pool in [0, 1), got {soften}")
        self.per_class = per_class
        self.pool = pool
        self.soften = soften
        self.replacement = replacement
        batches = resolve_batches(batches, classes, batch_size, batch_size // per_class)
        super().__init__(classes, batch_size, batches, seed, rank, world_size)

    def plan(self, epoch: int) -> Tensor:
        assert self.bank is not None
        embeddings, study = self.bank.read_all(), self.replacement == "study"
        turns = ClassTurns(len(self.classes))
        batches = []
        for number in range(self.batches):
            generator = derive_batch_generator(self.seed, epoch, number)
            if study:
                pool = draw_study_pool(self.classes, self.pool, 1, generator)
            else:
                pool = draw_pool(self.classes, self.pool, 1, turns.due, generator)
            points, class_of = embeddings[pool.items].double(), pool.class_of
            count, farthest = self.batch_size // self.per_class, math.ceil(self.soften * len(points))
            classes, due = (None, None) if study else (class_of, turns.due[class_of])
            centers = select_centers(points, count, generator, classes, due, farthest)
            turns.mark_used(class_of[centers])
            batches.append(self._add_positives(pool.items[centers], class_of[centers], generator))
        return torch.stack(batches)

    def _add_positives(self, items: Tensor, classes: Tensor, generator: torch.Generator) -> Tensor:
        """Return each item followed by per_class - 1 items of its class, (batch_size,)."""
        owner = classes[:, None].expand(-1, self.per_class)
        if self.replacement == "study":
            group = self.classes.take(owner, draw_with_replacement(self.classes.sizes[owner], generator))
        else:
            rows = torch.arange(len(items))
            members = draw_distinct(self.classes.sizes[classes], torch.full_like(rows, self.per_class), generator)
            group = self.classes.take(owner, members.view_as(owner))
            # the chosen item changes positions with the first; if it was not drawn it replaces the first
            group[rows, (group == items[:, None]).int().argmax(dim=1)] = group[:, 0].clone()
        group[:, 0] = items
        return group.flatten()


def select_centers(
    points: Tensor,
    count: int,
    generator: torch.Generator,
    classes: Tensor | None = None,
    due: Tensor | None = None,
    farthest: int = 0,
) -> Tensor:
    """Select rows (count,) of points: one at random, then always the one whose nearest selected row is farthest.

    Args:
        points: (P, D).
        count: Number of rows to select.
        generator: Source of random numbers.
        classes: Class of each row, (P,). Each class is then selected only once.
        due: Rows to select before all others, boolean (P,).
        farthest: If above 1, draw each next row from this many of the farthest.

    Examples:
        >>> line = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
        >>> select_centers(line, 2, torch.Generator(), due=torch.tensor([True, False, False, False]))
        tensor([0, 3])
    """
    squared = torch.cdist(points, points).square_()
    nearest = torch.full((points.shape[0],), torch.inf, dtype=points.dtype)
    free = torch.ones(points.shape[0], dtype=torch.bool)
    selected: list[int] = []
    for _ in range(count):
        allowed = free if due is None or not bool((free & due).any()) else free & due
        score = nearest.masked_fill(~allowed, -1.0)
        if not selected:
            rows = allowed.nonzero().flatten()
            row = int(rows[torch.randint(len(rows), (1,), generator=generator)])
        elif farthest > 1:
            rows = score.topk(min(farthest, int(allowed.sum()))).indices
            row = int(rows[torch.randint(len(rows), (1,), generator=generator)])
        else:
            row = int(score.argmax())
        selected.append(row)
        nearest = torch.minimum(nearest, squared[row])
        if classes is None:
            free[row] = False
        else:
            free &= classes != classes[row]
    return torch.tensor(selected)
