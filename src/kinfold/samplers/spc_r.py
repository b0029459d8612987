"""SPC-R: a random class for every item, and one item that surely has a positive (Roth et al., ICML 2020)."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.registry import check_choice
from kinfold.samplers.balanced_draws import draw_in_turns, draw_with_replacement
from kinfold.samplers.checks import check_integer, resolve_batches
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator

ROUNDS = 100  # exchanges between batches; a few are enough unless repetitions cannot be avoided


class SPCRSampler(Sampler):
    """Batches of batch_size - 1 items of random classes, and one item of a class that is already in the batch.

    Classes are drawn, not items: a class of two items comes as often as a class of a hundred. If there are many
    classes, most anchors have no positive (Roth et al., ICML 2020).

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes; at least 2.
        replacement: "when-needed": over the epoch every class is drawn equally often up to one (not counting the last
            items of the batches), in random batches; an item repeats in a batch only if its class has no other left.
            "study": every draw is independent, as in the code of Roth et al.
        batches: Batches per epoch; by default N // batch_size, or more if not all classes would come.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Process rank and world size; those of torch.distributed if left out. See `Sampler`.

    Raises:
        ValueError: An option is invalid.

    Examples:
        >>> [len(set(batch)) for batch in SPCRSampler([0, 0, 0, 1, 1, 1], batch_size=3)]
        [3, 3]
    """

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        replacement: str = "when-needed",
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        check_integer(2, batch_size=batch_size)
        check_choice("replacement", replacement, ("when-needed", "study"))
        classes = ClassIndex.from_labels(labels)
        self.replacement = replacement
        batches = resolve_batches(batches, classes, batch_size, batch_size - 1)
        super().__init__(classes, batch_size, batches, seed, rank, world_size)

    def plan(self, epoch: int) -> Tensor:
        generator = derive_batch_generator(self.seed, epoch)
        shape = (self.batches, self.batch_size - 1)
        if self.replacement == "study":
            drawn = draw_with_replacement(torch.full(shape, len(self.classes)), generator)
            positive = draw_with_replacement(torch.full((self.batches, 1), self.batch_size - 1), generator)
            drawn = torch.cat([drawn, drawn.gather(1, positive)], dim=1)
            return self.classes.take(drawn, draw_with_replacement(self.classes.sizes[drawn], generator))
        drawn = self._draw_classes(generator)
        drawn = torch.cat([drawn, self._draw_positives(drawn, generator)], dim=1)
        visits, visit_of, counts = torch.unique(self._visits(drawn), return_inverse=True, return_counts=True)
        members = draw_in_turns(self.classes.sizes, visits % len(self.classes), counts, generator)
        # the members lie in the order of the visits: move them to the positions of each visit
        order = torch.argsort(visit_of.flatten(), stable=True)
        members = torch.empty_like(members).index_copy_(0, order, members)
        return self.classes.take(drawn, members.view_as(drawn))

    def _draw_classes(self, generator: torch.Generator) -> Tensor:
        """Draw classes (batches, batch_size - 1), each equally often, in a batch at most as often as it has items."""
        total = self.batches * (self.batch_size - 1)
        first = torch.randperm(len(self.classes), generator=generator)  # the first ones come once more than the others
        drawn = first[torch.randperm(total, generator=generator) % len(self.classes)]
        for _ in range(ROUNDS):
            table = drawn.view(self.batches, -1)
            excess = (self._count_earlier(table) >= self.classes.sizes[table]).flatten().nonzero().flatten()
            if excess.shape[0] == 0:
                break
            others = torch.randperm(total, generator=generator)
            others = others[~torch.isin(others, excess)][: excess.shape[0]]
            excess = excess[: others.shape[0]]
            drawn[excess], drawn[others] = drawn[others], drawn[excess]
        return drawn.view(self.batches, -1)

    def _draw_positives(self, drawn: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the class of a random item of each batch, if possible one that has an item left, (batches, 1)."""
        _, visit_of, counts = torch.unique(self._visits(drawn), return_inverse=True, return_counts=True)
        left = counts[visit_of] < self.classes.sizes[drawn]
        chance = torch.rand(drawn.shape, generator=generator, dtype=torch.float64)
        return drawn.gather(1, (chance + left).argmax(dim=1, keepdim=True))

    def _visits(self, drawn: Tensor) -> Tensor:
        """Number the visits of a batch to a class; later batches have larger numbers."""
        return torch.arange(self.batches)[:, None] * len(self.classes) + drawn

    def _count_earlier(self, drawn: Tensor) -> Tensor:
        """Count how often the class at each position came before in its batch."""
        flat = self._visits(drawn).flatten()
        order = torch.argsort(flat, stable=True)
        _, counts = torch.unique(flat, return_counts=True)
        begin = (counts.cumsum(0) - counts).repeat_interleave(counts)
        earlier = torch.arange(flat.shape[0]) - begin
        return torch.empty_like(earlier).index_copy_(0, order, earlier).view_as(drawn)
