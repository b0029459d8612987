"""Smart mining: triplets with hard negatives from the whole training set, as hard as training can use them."""

from typing import Any

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.pairs.measures import normalize
from kinfold.samplers.balanced_draws import draw_in_turns, draw_with_replacement
from kinfold.samplers.checks import check_integer
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.sampler import Sampler
from kinfold.seeding import derive_batch_generator

_CHUNK_PAIRS = 2**22  # similarities at a time: 32 MB in float64


class SmartMiningSampler(Sampler):
    """Batches of triplets (anchor, positive, negative), one after the other. Needs embeddings.

    For every anchor the negatives nearest to it in the whole training set are searched, and one is drawn from a window
    of their ranking. A controller moves the window after every epoch: to nearer, harder negatives while fewer than
    `target` of the triplets of the epoch violate the margin, and back otherwise. Anchors take turns; the positive is a
    random item of the class. Use it with the miner `sampled-triplets`.

    After Harwood et al., "Smart mining for deep metric learning", ICCV 2017. The paper was not at hand. Its abstract
    says that the whole training set is searched, that a controller adapts the search to the progress of training, and
    that the objective is a triplet and a global loss (`global-triplet`). It searches by approximate nearest-neighbor
    graphs; here the search is exact. The window, its rule, and all numbers are ours.

    Args:
        labels: Class of each item, (N,): integers or strings. Without a class of two items, or without a second class,
            batches have items that make no triplet.
        batch_size: Items per batch, over all processes. Of a number that 3 does not divide, the last triplet is cut.
        neighbors: Nearest negatives of an anchor from which its negative is drawn.
        window: Size of the window in their ranking.
        target: Share of violated triplets that the controller aims at.
        margin: Margin of a violated triplet, on squared distances of unit vectors divided by 4, as in `global-triplet`.
        batches: Batches per epoch; by default N // batch_size, at least 1.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Process rank and world size; those of torch.distributed if left out. See `Sampler`.

    Attributes:
        offset: Rank at which the window begins; 0 is the hardest.

    Raises:
        ValueError: An option is invalid.
    """

    needs_embeddings = True

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        neighbors: int = 100,
        window: int = 10,
        target: float = 0.5,
        margin: float = 0.05,
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        check_integer(1, neighbors=neighbors, window=window)
        if window > neighbors:
            raise ValueError(f"window={window} is wider than neighbors={neighbors}; lower it, or raise neighbors")
        if not 0.0 < target < 1.0:
            raise ValueError(f"target is a share between 0 and 1, got {target}")
        classes = ClassIndex.from_labels(labels)
        check_integer(1, batch_size=batch_size)
        batches = max(1, classes.count_items() // batch_size) if batches is None else batches
        super().__init__(classes, batch_size, batches, seed, rank, world_size)
        self.neighbors = neighbors
        self.window = window
        self.target = target
        self.margin = margin
        self._class_of = torch.empty_like(classes.items)
        self._class_of[classes.items] = torch.arange(len(classes)).repeat_interleave(classes.sizes)
        self.offset = neighbors - window
        self._violated, self._measured = 0, 0  # triplets since the last epoch began

    def plan(self, epoch: int) -> Tensor:
        assert self.bank is not None
        self._move_window()
        generator = derive_batch_generator(self.seed, epoch)
        rows = normalize(self.bank.read_all().double())
        count = -(-self.batch_size // 3)  # triplets of a batch
        usable = self.classes.items[self.classes.sizes[self._class_of[self.classes.items]] > 1]
        usable = self.classes.items if len(usable) == 0 else usable
        visits = torch.zeros(self.batches, dtype=torch.int64)
        turns = draw_in_turns(torch.tensor([len(usable)]), visits, torch.full_like(visits, count), generator)
        anchors = usable[turns]
        triplets = [anchors, self._draw_positives(anchors, generator), self._draw_negatives(anchors, rows, generator)]
        return torch.stack(triplets, dim=1).view(self.batches, -1)[:, : self.batch_size]

    def update(self, indices: Tensor, embeddings: Tensor) -> None:
        super().update(indices, embeddings)
        index = torch.as_tensor(indices).cpu()
        if not self._is_planned(index):
            return  # embeddings of other items than a batch, such as all items
        count = self.batch_size // 3
        rows = normalize(torch.as_tensor(embeddings).detach().cpu().double())[: 3 * count].view(count, 3, -1)
        distance = (rows[:, :1] - rows[:, 1:]).square().sum(dim=2) / 4.0
        self._violated += int((distance[:, 0] - distance[:, 1] + self.margin > 0).sum())
        self._measured += count

    def _is_planned(self, index: Tensor) -> bool:
        if self._planned is None or index.shape != (self.batch_size,):
            return False
        return bool((self._planned == index).all(dim=1).any())

    def _move_window(self) -> None:
        """Move the window by its own size after an epoch of measured triplets."""
        if self._measured:
            is_easy = self._violated < self.target * self._measured
            moved = self.offset - self.window if is_easy else self.offset + self.window
            self.offset = min(max(moved, 0), self.neighbors - self.window)
        self._violated, self._measured = 0, 0

    def _draw_positives(self, anchors: Tensor, generator: torch.Generator) -> Tensor:
        classes = self._class_of[anchors]
        # one of the other items of the class: skip the position of the anchor
        position = torch.empty_like(self.classes.items)
        starts = self.classes.starts.repeat_interleave(self.classes.sizes)
        position[self.classes.items] = torch.arange(len(position)) - starts
        others = self.classes.sizes[classes] - 1
        drawn = draw_with_replacement(others.clamp(min=1), generator)
        return self.classes.take(classes, torch.where(others > 0, drawn + (drawn >= position[anchors]), 0))

    def _draw_negatives(self, anchors: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        """One of the nearest negatives of each anchor, in the window of their ranking."""
        chance = torch.rand(len(anchors), generator=generator, dtype=torch.float64)
        chunk, drawn = max(1, _CHUNK_PAIRS // len(rows)), []
        for start in range(0, len(anchors), chunk):
            some = anchors[start : start + chunk]
            similarity = rows[some] @ rows.T
            is_positive = self._class_of[some, None] == self._class_of
            wanted = min(self.neighbors, len(rows))
            nearest = similarity.masked_fill_(is_positive, -torch.inf).topk(wanted, dim=1).indices
            available = (len(rows) - is_positive.sum(dim=1)).clamp(max=wanted)
            low = torch.minimum(torch.full_like(available, self.offset), (available - self.window).clamp(min=0))
            width = torch.minimum(available - low, torch.full_like(low, self.window))
            rank = low + (chance[start : start + chunk] * width).long().clamp(max=self.window - 1)
            drawn.append(nearest.gather(1, rank[:, None]).squeeze(1))
        return torch.cat(drawn)

    def state_dict(self) -> dict[str, Any]:
        """As that of `Sampler`, with the window and the triplets that were measured in this epoch."""
        return {
            **super().state_dict(),
            "offset": self.offset,
            "violated": self._violated,
            "measured": self._measured,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.offset, self._violated, self._measured = (int(state[key]) for key in ("offset", "violated", "measured"))
