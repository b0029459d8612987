"""The exact rank of every relevant item, from which all retrieval metrics follow.

The rank of an item is one plus the number of gallery items with a higher canonical score, or an equal one and a smaller
index. Products say of most items on which side of a relevant one they are; the canonical score decides on the rest.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.metrics._ranking.approximation import Approximation, approximate, thresholds
from kinfold.metrics._ranking.counting import Counting
from kinfold.metrics._ranking.first_ranks import Heads
from kinfold.metrics._ranking.product_speed import product_speeds
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.relevance import Relevance
from kinfold.metrics._ranking.scan import MEMORY, Bound, Scratch, chunks, rows_at_once, symmetric_products
from kinfold.metrics._ranking.sorting import sorted_ranks

BEYOND = torch.iinfo(torch.int64).max >> 1  # the rank of what lies deeper than anybody asked

_CROWDED = 0.25  # share of all pairs that are candidates above which sorting is better
_ROWS_AT_ONCE = 1024
_DEEP = 256  # depth from which on products are worked out in pieces
_PIECE = 128  # features
_FEW = 1 << 16  # candidates that are no burden in any case
_SHALLOW = 64  # depth down to which products of whole numbers tell most items apart
_TRIALS = 2  # blocks
_BLOCKS = 8  # from which on it is worth to find out which product is the fastest
_BESIDE = 1.2  # times that of the products is the least that a block takes
_FEATURES = 1 << 16  # above which products of whole numbers need more than int32
# when the first places of a ranking (see Heads) cost less than the place of each relevant item
_MANY = 32  # relevant items of one query from which on they do
_DEEPER = 8  # times as many places as relevant items, from which on they do not,
_VERY_MANY = 256  # unless there are so many
_NEAREST = 4  # places for which they do in any case
_NEAREST_OF_FEW = 16  # the same for few queries
_SMALL = 1 << 12  # items in all for which they do in any case


@dataclass(frozen=True)
class Depth:
    """How deep ranks must be known: all of them down to `fixed` and to the number of relevant items plus
    `beside_relevant` (None: no need), that of the first relevant item down to `first`, or all of them to the end."""

    fixed: int = 0
    beside_relevant: int | None = None
    first: int = 0
    full: bool = False

    def __or__(self, other: "Depth") -> "Depth":
        beside = [d.beside_relevant for d in (self, other) if d.beside_relevant is not None]
        return Depth(
            max(self.fixed, other.fixed),
            max(beside) if beside else None,
            max(self.first, other.first),
            self.full or other.full,
        )

    def at(self, relevant: int, size: int) -> tuple[int, int]:
        """Depths for all relevant items and for the first, in a block whose queries have up to `relevant` of them."""
        beside = 0 if self.beside_relevant is None else relevant + self.beside_relevant
        everything = size if self.full else min(size, max(1, self.fixed, beside))
        return everything, max(everything, min(size, self.first))


class Ranker:
    """Ranks of relevant items, block by block."""

    def __init__(
        self,
        comparison: QueryGallery,
        relevance: Relevance,
        depth: Depth,
        memory: int = MEMORY,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.comparison = comparison
        self.relevance = relevance
        self.depth = depth
        self.memory = memory
        self._dtype = dtype
        self._approximations: dict[torch.dtype, Approximation] = {}
        self._speeds = product_speeds(comparison.gallery.device)
        self._choices = [dtype] if dtype is not None else [*self._speeds]
        deep = depth.at(int(relevance.size.max()), comparison.size)[0] > _SHALLOW
        if comparison.distance == "euclidean" or comparison.gallery.shape[1] > _FEATURES or (deep and dtype is None):
            self._choices = [choice for choice in self._choices if choice != torch.int8]
        self._seconds: dict[torch.dtype, float] = {}  # that a query took, by the products that were tried
        self._tried: Counter[torch.dtype] = Counter()
        self._scratch = Scratch()
        self._heads = Heads(comparison, relevance, memory, BEYOND)
        self._known: Tensor | None = None  # all products, where half of them give the others
        self._thresholds: Tensor | None = None  # of all queries, then

    def blocks(self, queries: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Pieces of (queries (B,), ranks (B, R) ascending, BEYOND where deeper than asked or no item); `queries` in
        the order of `Relevance.order`."""
        counts = self.relevance.counts
        if queries.shape[0] < _BLOCKS * rows_at_once(self.comparison.size, self._choices[-1], self.memory):
            self._choices = self._choices[-1:]  # too few blocks to find out which product is the faster
        if self._know(queries):
            queries = queries.sort().values  # rows of known products need not be gathered where they follow each other
        start = 0
        while start < queries.shape[0]:
            rows = rows_at_once(self.comparison.size, self._choices[-1], self.memory)
            which = queries[start : start + rows]
            widest = int(counts[which].max()) + 1
            which = which[: max(1, (self.memory >> 5) // widest)]
            if self._heads.knows or self._by_heads(widest):
                start += which.shape[0]
                depths = self.depth.at(int(counts[which].max()), self.comparison.size)
                yield which, self._heads.ranks(which, *depths)
                continue
            dtype = self._choice()
            self._approximation(dtype)
            items, valid = self.relevance.of(which)
            began = time.perf_counter()
            ranks = self._ranks(which, items, valid, dtype).sort(dim=1).values
            seconds = (time.perf_counter() - began) / which.shape[0]
            self._seconds[dtype] = min(seconds, self._seconds.get(dtype, seconds))
            start += which.shape[0]
            yield which, ranks

    def _know(self, queries: Tensor) -> bool:
        """Work out all products beforehand where that is half the work: a small set against itself."""
        size = self.comparison.size
        widest = int(self.relevance.size.max())
        fits = size**2 * torch.float32.itemsize <= self.memory
        if 2 * queries.shape[0] < size or torch.float32 not in self._choices or not fits:
            return False
        depth = self.depth.at(widest, size)[0]
        heads = self._by_heads(widest)
        if heads and not (self._heads.selects(depth) and self.comparison.gallery.shape[1] >= _PIECE):
            return False
        approximation = self._heads.float32(depth) if heads else self._approximation(torch.float32)
        if not heads and depth >= _DEEP:
            # deep ranks meet many items that are nearly as close: better products save more than they cost
            approximation = approximation.in_pieces(approximation.queries.shape[1] // _PIECE)
        known = symmetric_products(approximation, self.memory)
        if known is None:
            return False
        if heads:
            self._heads.know(known, approximation.symmetric())
            return True
        self._known = known
        self._choices = [torch.float32]
        self._approximations[torch.float32] = approximation.symmetric()
        # thresholds need classes together, rows of products need not
        table = queries.new_zeros(size, widest, dtype=torch.float64)
        for which in torch.split(queries, _ROWS_AT_ONCE):
            found = self._at(which, self.relevance.of(which)[0], approximation)
            table[which, : found.shape[1]] = found
        self._thresholds = table
        return True

    def _by_heads(self, widest: int) -> bool:
        """Whether queries with up to `widest` relevant items, themselves among them, are ranked by the first places of
        their rankings rather than by the place of each relevant item."""
        if self._dtype is not None:  # the user of this class wants these products
            return widest > _MANY
        # where queries are too few to find out which products are fast, a search by coarse products is faster
        limit = _NEAREST if len(self._choices) > 1 else _NEAREST_OF_FEW
        nearest = max(self.depth.at(widest, self.comparison.size)) <= limit
        if nearest or self.comparison.size <= _SMALL or widest > _VERY_MANY:
            return True
        # where a ranking is needed far deeper than there are relevant items, their places are fewer
        return widest > _MANY and (self.depth.full or self.depth.fixed <= _DEEPER * widest)

    def _at(self, which: Tensor, items: Tensor, approximation: Approximation) -> Tensor:
        """Where the items stand among the products, (B, R) float64."""
        if self._thresholds is not None:
            return self._thresholds[which, : items.shape[1]]
        return thresholds(approximation, which, items, self.relevance.query_class[which])

    def _choice(self) -> torch.dtype:
        """Products for the next block: each kind is tried on two blocks, unless its products would take as long as
        another took in all; then the fastest. The ranks are the same."""
        best = min(self._seconds.values(), default=float("inf"))
        entries = self.comparison.size * self.comparison.gallery.shape[1]
        for choice in self._choices:
            if self._tried[choice] < _TRIALS and _BESIDE * self._speeds.get(choice, 0.0) * entries < best:
                self._tried[choice] += 1
                return choice
        return min(self._seconds, key=lambda choice: self._seconds[choice])

    def _approximation(self, dtype: torch.dtype) -> Approximation:
        if dtype not in self._approximations:
            self._approximations[dtype] = approximate(self.comparison, dtype)
        return self._approximations[dtype]

    def _ranks(self, which: Tensor, items: Tensor, valid: Tensor, dtype: torch.dtype) -> Tensor:
        exclude = which if self.comparison.same else None
        found = self._by_counting(which, items, valid, exclude, dtype)
        if found is None and dtype != torch.float32:
            found = self._by_counting(which, items, valid, exclude, torch.float32)
        if found is not None:
            return found
        exact = self._approximation(torch.float64)
        rows = max(1, self.memory // (exact.gallery.shape[0] * 40))
        parts = [slice(s, s + rows) for s in range(0, which.shape[0], rows)]
        ranks = [sorted_ranks(exact, which[p], items[p], exclude if exclude is None else exclude[p]) for p in parts]
        return torch.where(valid, torch.cat(ranks), BEYOND)

    def _by_counting(
        self, which: Tensor, items: Tensor, valid: Tensor, exclude: Tensor | None, dtype: torch.dtype
    ) -> Tensor | None:
        """Ranks (B, R), or None where too much of the gallery is above the lowest item that matters."""
        approximation = self._approximation(dtype)
        at = self._at(which, items, approximation)
        counted = self._approximation(torch.float32) if dtype == torch.int8 else approximation
        counting = Counting(approximation, counted, which, items, at, valid)
        depths = self.depth.at(int(valid.sum(dim=1).max()), self.comparison.size)
        bound, seen = Bound(max(depths)), 0
        bounded = depths[0] < self.comparison.size
        for chunk in chunks(approximation, which, exclude, depths[0] if bounded else 1, self._scratch, self._known):
            if bounded:
                bound.update(chunk)
                counting.reach(bound, *depths)
            for row, column, product in chunk.candidates(counting.floor):
                seen += row.shape[0]
                if seen > _CROWDED * which.shape[0] * self.comparison.size and seen > _FEW:
                    return None
                counting.add(row, column, product)
        return counting.ranks(BEYOND)
