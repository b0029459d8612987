"""The exact rank of every relevant item, from which all retrieval metrics follow.

The rank of an item is one plus the number of gallery items with a higher canonical score, or an equal one and a smaller
index. Products say of most items on which side of a relevant one they are; the canonical score decides on the rest.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.metrics.approximation import Approximation, approximate, fastest, thresholds
from kinfold.metrics.comparison import Comparison
from kinfold.metrics.relevance import Relevance
from kinfold.metrics.scan import MEMORY, Bound, Scratch, chunks, rows_at_once
from kinfold.metrics.sorting import sorted_ranks

BEYOND = torch.iinfo(torch.int64).max >> 1  # the rank of what lies deeper than anybody asked

_CROWDED = 0.25  # share of the groups with candidates above which sorting is better
_MANY = 256  # relevant items of one query above which sorting is better
_PAIRS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Depth:
    """How deep ranks must be known: down to `fixed`, to the number of relevant items plus `beside_relevant` (None: no
    need), to the end for the first relevant item or for all of them."""

    fixed: int = 0
    beside_relevant: int | None = None
    first: bool = False
    full: bool = False

    def __or__(self, other: "Depth") -> "Depth":
        beside = [d.beside_relevant for d in (self, other) if d.beside_relevant is not None]
        return Depth(
            max(self.fixed, other.fixed),
            max(beside) if beside else None,
            self.first or other.first,
            self.full or other.full,
        )

    def at(self, relevant: int, size: int) -> int:
        """The depth in a block whose queries have up to `relevant` relevant items."""
        if self.full:
            return size
        beside = 0 if self.beside_relevant is None else relevant + self.beside_relevant
        return min(size, max(1, self.fixed, beside))


class Ranker:
    """Ranks of relevant items, block by block."""

    def __init__(
        self,
        comparison: Comparison,
        relevance: Relevance,
        depth: Depth,
        memory: int = MEMORY,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.comparison = comparison
        self.relevance = relevance
        self.depth = depth
        self.memory = memory
        self._approximations: dict[torch.dtype, Approximation] = {}
        self._choices = [dtype] if dtype is not None else [torch.float32]
        if dtype is None and fastest(comparison.gallery.device) == torch.bfloat16:
            self._choices = [torch.bfloat16, torch.float32]
        self._times: dict[torch.dtype, list[float]] = {choice: [] for choice in self._choices}
        self._scratch = Scratch()

    def blocks(self, queries: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Pieces of (queries (B,), ranks (B, R) ascending, BEYOND where deeper than asked or no item); `queries` in
        the order of `Relevance.order`."""
        counts = self.relevance.counts
        start = 0
        while start < queries.shape[0]:
            rows = rows_at_once(self._approximation(self._choices[-1]), self.memory)
            if len(self._choices) > 1 and queries.shape[0] < 8 * rows:
                self._choices = self._choices[-1:]  # too few blocks to find out which product is the faster
            which = queries[start : start + rows]
            widest = int(counts[which].max()) + 1
            which = which[: max(1, (self.memory >> 5) // widest)]
            dtype = self._choices[0]
            self._approximation(dtype)
            items, valid = self.relevance.of(which)
            began = time.perf_counter()
            ranks = self._ranks(which, items, valid, dtype).sort(dim=1).values
            self._learn(dtype, (time.perf_counter() - began) / which.shape[0])
            start += which.shape[0]
            yield which, ranks

    def _learn(self, dtype: torch.dtype, seconds: float) -> None:
        """Try each product on two blocks, then keep the faster: the ranks are the same."""
        if len(self._choices) > 1:
            self._times[dtype].append(seconds)
            self._choices = self._choices[1:] + self._choices[:1]
            if all(len(times) == 2 for times in self._times.values()):
                self._choices = [min(self._choices, key=lambda choice: min(self._times[choice]))]

    def _approximation(self, dtype: torch.dtype) -> Approximation:
        if dtype not in self._approximations:
            self._approximations[dtype] = approximate(self.comparison, dtype)
        return self._approximations[dtype]

    def _ranks(self, which: Tensor, items: Tensor, valid: Tensor, dtype: torch.dtype) -> Tensor:
        exclude = which if self.comparison.same else None
        if items.shape[1] <= _MANY:
            found = self._by_counting(which, items, valid, exclude, dtype)
            if found is None and dtype == torch.bfloat16:
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
        at = thresholds(approximation, which, items, self.relevance.query_class[which])
        slack = approximation.slack(at, which)
        high = at + slack
        low = at.sub_(slack)
        depth = self.depth.at(int(valid.sum(dim=1).max()), self.comparison.size)
        always = valid if self.depth.full else torch.zeros_like(valid)
        if self.depth.first and not self.depth.full:
            always = valid & (high >= torch.where(valid, low, -torch.inf).amax(dim=1, keepdim=True))
        bound = Bound(depth)
        counts = torch.zeros_like(items)
        for chunk in chunks(approximation, which, exclude, depth, self._scratch):
            if not self.depth.full:
                kth = bound.update(chunk.maxima).double()
                # with -inf as bound the slack is infinite too, and their difference not a number: everything counts
                reached = (kth - approximation.slack(kth, which)).nan_to_num(nan=-torch.inf)
                useful = always | (valid & (high >= reached[:, None]))
            else:
                useful = always
            floor = torch.where(useful, low, torch.inf).amin(dim=1)
            if chunk.crowding(floor) > _CROWDED and chunk.maxima.numel() > 1 << 16:
                return None
            for row, column, product in chunk.candidates(floor):
                _count(counts, useful, low, high, row, column, product, which, items, approximation)
        return torch.where(useful, counts + 1, BEYOND)


def _count(
    counts: Tensor,
    useful: Tensor,
    low: Tensor,
    high: Tensor,
    row: Tensor,
    column: Tensor,
    product: Tensor,
    which: Tensor,
    items: Tensor,
    approximation: Approximation,
) -> None:
    """Add to `counts` (B, R) how many candidates are above each relevant item."""
    if row.shape[0] == 0:
        return
    rows = slice(int(row[0]), int(row[-1]) + 1)
    # one sorted list for all rows: the row and, descending, the product in one number
    span = 4.0 * approximation.reach
    key, order = torch.sort(row.double() * span - product.double())
    at = torch.arange(rows.start, rows.stop, device=row.device).double()[:, None] * span
    before = torch.searchsorted(key, at - span / 2)
    above = torch.searchsorted(key, at - high[rows])
    until = torch.searchsorted(key, at - low[rows], right=True)
    counts[rows] += torch.where(useful[rows], above - before, 0)
    unsure = torch.where(useful[rows], until - above, 0).flatten()
    (item,) = (unsure > 0).nonzero(as_tuple=True)
    for part in _split(item, unsure[item]):
        _decide(counts, rows.start, part, unsure, above.flatten(), column[order], which, items, approximation)


def _decide(
    counts: Tensor,
    first_row: int,
    item: Tensor,
    unsure: Tensor,
    above: Tensor,
    column: Tensor,
    which: Tensor,
    items: Tensor,
    approximation: Approximation,
) -> None:
    """Compare candidates within the error of a relevant item with it by canonical scores."""
    owner = item.repeat_interleave(unsure[item])
    first = (unsure[item].cumsum(0) - unsure[item]).repeat_interleave(unsure[item])
    candidate = column[above[owner] + torch.arange(owner.shape[0], device=owner.device) - first]
    width = items.shape[1]
    row, place = first_row + owner // width, owner % width
    other = candidate != items[row, place]  # an item is not above itself
    row, place, candidate = row[other], place[other], candidate[other]
    if row.shape[0] == 0:
        return
    relevant, back = torch.unique(row * width + place, return_inverse=True)
    exact = approximation.comparison.exact
    theirs = exact(which[relevant // width], items.flatten()[relevant])[back]
    own = exact(which[row], candidate)
    higher = (own > theirs) | ((own == theirs) & (candidate < items[row, place]))
    counts.view(-1).index_add_(0, row * width + place, higher.to(counts.dtype))


def _split(item: Tensor, sizes: Tensor) -> list[Tensor]:
    """Pieces whose sizes add up to a bounded number each, or hold one item."""
    if item.shape[0] == 0:
        return []
    piece = (sizes.cumsum(0) - sizes) // _PAIRS_AT_ONCE
    lengths = torch.unique_consecutive(piece, return_counts=True)[1]
    return list(item.split(lengths.tolist()))
