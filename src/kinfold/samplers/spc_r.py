"""SPC-R: a random class for every item, and one item that has a mate for certain (Roth et al., ICML 2020)."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.samplers.balanced_draws import draw_in_turns, draw_with_replacement
from kinfold.samplers.checks import check_choice, check_integer, resolve_batches
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator

ROUNDS = 100  # of exchanges between batches; a few are enough unless no arrangement without repetition exists


class SPCRSampler(Sampler):
    """batch_size - 1 items of random classes; the last one is of the class of a random item of the batch.

    Random by class, not by item: a class of two comes as often as a class of a hundred. Most anchors have no positive
    when there are many classes.

    `replacement="when-needed"`: over the epoch each class is drawn equally often up to one (not counting the last items
    of the batches), which batch it falls into is random; an item is repeated in a batch only where its class runs out.
    "study": every draw is independent, as Roth et al. ran it.

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
        ranks: int | None = None,
    ) -> None:
        check_integer(2, batch_size=batch_size)
        check_choice("replacement", replacement, ("when-needed", "study"))
        classes = ClassIndex.from_labels(labels)
        self.replacement = replacement
        batches = resolve_batches(batches, classes, batch_size, batch_size - 1)
        super().__init__(classes, batch_size, batches, seed, rank, ranks)

    def plan(self, epoch: int) -> Tensor:
        source = derive_batch_generator(self.seed, epoch)
        shape = (self.batches, self.batch_size - 1)
        if self.replacement == "study":
            drawn = draw_with_replacement(torch.full(shape, len(self.classes)), source)
            mate = draw_with_replacement(torch.full((self.batches, 1), self.batch_size - 1), source)
            drawn = torch.cat([drawn, drawn.gather(1, mate)], dim=1)
            return self.classes.take(drawn, draw_with_replacement(self.classes.sizes[drawn], source))
        drawn = self._spread(source)
        drawn = torch.cat([drawn, self._mates(drawn, source)], dim=1)
        visits, visit_of, counts = torch.unique(self._visits(drawn), return_inverse=True, return_counts=True)
        cards = draw_in_turns(self.classes.sizes, visits % len(self.classes), counts, source)
        # the cards lie in the order of the visits: hand them to the places of each visit
        dealt = torch.empty_like(cards).index_copy_(0, torch.argsort(visit_of.flatten(), stable=True), cards)
        return self.classes.take(drawn, dealt.view_as(drawn))

    def _spread(self, source: torch.Generator) -> Tensor:
        """Classes (batches, batch_size - 1) in random order, each equally often, none beyond its items in a batch."""
        total = self.batches * (self.batch_size - 1)
        first = torch.randperm(len(self.classes), generator=source)  # who comes once more than the others
        drawn = first[torch.randperm(total, generator=source) % len(self.classes)]
        for _ in range(ROUNDS):
            table = drawn.view(self.batches, -1)
            excess = (self._turn(table) >= self.classes.sizes[table]).flatten().nonzero().flatten()
            if excess.shape[0] == 0:
                break
            others = torch.randperm(total, generator=source)
            others = others[~torch.isin(others, excess)][: excess.shape[0]]
            excess = excess[: others.shape[0]]
            drawn[excess], drawn[others] = drawn[others], drawn[excess]
        return drawn.view(self.batches, -1)

    def _mates(self, drawn: Tensor, source: torch.Generator) -> Tensor:
        """The class of a random member of each batch, if possible one that has an item left, (batches, 1)."""
        _, visit_of, counts = torch.unique(self._visits(drawn), return_inverse=True, return_counts=True)
        left = counts[visit_of] < self.classes.sizes[drawn]
        chance = torch.rand(drawn.shape, generator=source, dtype=torch.float64)
        return drawn.gather(1, (chance + left).argmax(dim=1, keepdim=True))

    def _visits(self, drawn: Tensor) -> Tensor:
        """One number for each class in each batch, growing with the batch."""
        return torch.arange(self.batches)[:, None] * len(self.classes) + drawn

    def _turn(self, drawn: Tensor) -> Tensor:
        """How often the class at each place came before in its batch."""
        flat = self._visits(drawn).flatten()
        order = torch.argsort(flat, stable=True)
        _, counts = torch.unique(flat, return_counts=True)
        begin = (counts.cumsum(0) - counts).repeat_interleave(counts)
        turn = torch.arange(flat.shape[0]) - begin
        return torch.empty_like(turn).index_copy_(0, order, turn).view_as(drawn)
