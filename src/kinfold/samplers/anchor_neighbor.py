"""Anchor-neighbor sampling: some classes, and those that are nearest to them (Ge et al., ECCV 2018)."""

import torch
from torch import Tensor

from kinfold.pairs.class_means import ClassMeans
from kinfold.pairs.labels import Labels
from kinfold.samplers.balanced_draws import draw_in_turns, draw_with_replacement
from kinfold.samplers.checks import check_integer, resolve_batches, select_classes
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator


class AnchorNeighborSampler(Sampler):
    """Batches of neighborhoods: a class and its nearest classes, `per_class` items of each. Needs embeddings.

    Batches of the hierarchical triplet loss (Ge et al., ECCV 2018): classes that take turns, each with the
    `neighborhood` - 1 classes whose items are nearest to its items on average, in squared distance of unit vectors. The
    neighbors of a class are those that are not in the batch yet, so that all classes of a batch are different; the
    paper does not say what it does. The last neighborhood of a batch is smaller if the numbers do not divide.

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes. A multiple of `per_class`.
        per_class: Items per class in a batch.
        neighborhood: Classes of a neighborhood, its first one included.
        replacement: As in `SPCSampler`. With "study" first classes and items are drawn independently, and a class
            comes twice in a batch only if there are too few.
        batches: Batches per epoch; by default N // batch_size, or more if not all classes would be first in one.
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
        neighborhood: int = 5,
        replacement: str = "when-needed",
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        classes = select_classes(ClassIndex.from_labels(labels), batch_size, per_class, replacement)
        check_integer(1, neighborhood=neighborhood)
        self.per_class = per_class
        self.neighborhood = neighborhood
        self.replacement = replacement
        self._groups = batch_size // per_class
        self._firsts = -(-self._groups // neighborhood)  # neighborhoods of a batch
        batches = resolve_batches(batches, classes, batch_size, self._firsts)
        super().__init__(classes, batch_size, batches, seed, rank, world_size)

    def plan(self, epoch: int) -> Tensor:
        assert self.bank is not None
        generator = derive_batch_generator(self.seed, epoch)
        means = self._compute_means(self.bank.read_all())
        is_study = self.replacement == "study"
        if is_study:
            firsts = draw_with_replacement(torch.full((self.batches * self._firsts,), len(self.classes)), generator)
        else:
            visits = torch.zeros(self.batches, dtype=torch.int64)
            counts = torch.full_like(visits, self._firsts)
            firsts = draw_in_turns(torch.tensor([len(self.classes)]), visits, counts, generator)
        chosen = torch.cat([self._add_neighbors(row, means) for row in firsts.view(self.batches, -1)])
        classes = chosen.repeat_interleave(self.per_class)
        if is_study:
            members = draw_with_replacement(self.classes.sizes[classes], generator)
        else:
            members = draw_in_turns(self.classes.sizes, chosen, torch.full_like(chosen, self.per_class), generator)
        return self.classes.take(classes, members).view(self.batches, -1)

    def _compute_means(self, embeddings: Tensor) -> ClassMeans:
        index, count = self.classes, len(self.classes)
        codes = torch.arange(count).repeat_interleave(index.sizes)
        positions = torch.cat([torch.arange(size) for size in index.sizes.tolist()])
        return ClassMeans.from_embeddings(embeddings[index.take(codes, positions)], codes, count)

    def _add_neighbors(self, firsts: Tensor, means: ClassMeans) -> Tensor:
        """Return the classes of a batch: each first class, followed by its neighbors."""
        taken = torch.zeros(len(self.classes), dtype=torch.bool)
        taken[firsts] = True
        chosen: list[int] = []
        left = self._groups - self._firsts
        for first, distance in zip(firsts.tolist(), means.measure_distances(firsts), strict=True):
            chosen.append(first)
            for _ in range(min(self.neighborhood - 1, left)):
                if bool(taken.all()):  # fewer classes than a batch needs
                    taken[:] = False
                nearest = int(torch.where(taken, torch.inf, distance).argmin())
                taken[nearest] = True
                chosen.append(nearest)
                left -= 1
        return torch.tensor(chosen)
