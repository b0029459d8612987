"""Ranks of relevant items from the first places of a ranking: for classes of so many items that finding the place of
each of them would cost more than the ranking itself.

Three ways to the same ranks, by how many places are needed (`depth`):

- few: the nearest neighbors, each with its exact score;
- up to a part of the gallery: candidates from float32 products, sorted; exact scores decide where products that are
  closer than their error belong to relevant and other items (among relevant items the order does not matter);
- more: float64 products of the whole gallery, sorted, each with its relevance in its last bit. Where two of them are
  closer than their error and only one is relevant, the query is ranked by exact scores of whole runs (`sorting`).
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold.metrics._ranking.approximation import Approximation, approximate
from kinfold.metrics._ranking.ordering import descending, in_threads
from kinfold.metrics._ranking.product_speed import product_speeds
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.relevance import Relevance
from kinfold.metrics._ranking.scan import Bound, Scratch, chunks
from kinfold.metrics._ranking.sorting import sorted_ranks
from kinfold.metrics.neighbors import Searcher, candidate_floor

_FEW = 16  # places for which exact scores of all candidates cost less than float32 products, where bfloat16 is fast
_PART = 0.11  # of the gallery, up to which candidates are chosen before anything is sorted
_WORTH_SELECTING = 0.4  # of the gallery, up to which the places that are needed are separated before sorting
_BEYOND_DEPTH = 8  # more places that are looked at, for scores that tie with the last
_START = 16  # places in which the first relevant item is looked for at first
_DEEPER = 8  # times as many places are looked at where it is not there
_MOSTLY = 0.25  # of the queries may have none there, or the search starts deeper
_CANDIDATE_BYTES = 64
_PIECE, _SMALL_PIECE, _LONG = 64, 32, 200  # features that are multiplied at a time; the fewer from so many places on
_SORTED_AT_ONCE = 1 << 17  # float64 numbers that stay in the processor's cache


class Heads:
    """Ranks (B, W) of relevant items in the first places, ascending, `beyond` where there are no more."""

    def __init__(self, comparison: QueryGallery, relevance: Relevance, memory: int, beyond: int) -> None:
        self.comparison, self.relevance, self.memory, self.beyond = comparison, relevance, memory, beyond
        self._searcher = Searcher(comparison, memory)
        self._scratch = Scratch()
        self._approximations: dict[torch.dtype, Approximation] = {}
        self._known: tuple[Tensor, Approximation] | None = None
        self._start = _START
        self._coarse = torch.bfloat16 in product_speeds(comparison.gallery.device)

    def selects(self, depth: int) -> bool:
        """Whether so many places are found by float32 products."""
        return not self._few(depth) and depth <= _PART * self.comparison.size

    def float32(self, depth: int) -> Approximation:
        """The products by which so many places are found: the more of them, the more products are nearly the same, and
        the more exact scores are saved by products of less error."""
        approximation = self._approximation(torch.float32)
        piece = _SMALL_PIECE if depth >= _LONG and approximation.queries.shape[1] > 2 * _PIECE else _PIECE
        return approximation.in_pieces(approximation.queries.shape[1] // piece)

    def know(self, products: Tensor, approximation: Approximation) -> None:
        """Use all float32 products of a set with itself, which were worked out beforehand."""
        self._known = products, approximation

    @property
    def knows(self) -> bool:
        """Whether all products are known."""
        return self._known is not None

    def _few(self, depth: int) -> bool:
        return depth == 1 or (depth <= _FEW and self._coarse and self.comparison.size > 128 * depth)

    def ranks(self, which: Tensor, depth: int, depth_of_first: int) -> Tensor:
        """Of queries `which` (B,): all ranks down to `depth`, that of the first relevant item to `depth_of_first`.

        Deeper ranks are right where they are given.
        """
        # most queries have a relevant item near them; where the rest is not much deeper, one search is enough
        start = depth_of_first if depth_of_first <= 2 * self._start else max(depth, self._start)
        ranks = self._head(which, start)
        if start >= depth_of_first:
            return ranks
        (missing,) = (ranks[:, 0] >= self.beyond).nonzero(as_tuple=True)
        if missing.shape[0] > _MOSTLY * which.shape[0] and depth_of_first <= _PART * self.comparison.size:
            self._start = depth_of_first
        while missing.shape[0] and start < depth_of_first:
            start = min(depth_of_first, _DEEPER * start)
            ranks[missing, 0] = self._head(which[missing], start)[:, 0]
            missing = missing[ranks[missing, 0] >= self.beyond]
        return ranks

    def _head(self, which: Tensor, depth: int) -> Tensor:
        depth = min(depth, self.comparison.size)
        exclude = which if self.comparison.same else None
        if self._few(depth):
            columns = self._searcher.search(which, exclude, depth)[1]
            query_class = self.relevance.query_class[which, None]
            return self._places(self.relevance.gallery_class[columns] == query_class)
        if self.selects(depth):
            relevant = self._listed(which, exclude, depth)
            if relevant is not None:
                return self._places(relevant)
        return self._sorted(which, exclude, depth)

    def _places(self, relevant: Tensor) -> Tensor:
        """Ranks (B, W) from the relevance (B, depth) of the first places."""
        row, place = relevant.nonzero(as_tuple=True)
        each = torch.bincount(row, minlength=relevant.shape[0])
        ranks = place.new_full((relevant.shape[0], max(1, int(each.max()))), self.beyond)
        ranks.masked_scatter_(torch.arange(ranks.shape[1], device=row.device) < each[:, None], place + 1)
        return ranks

    def _approximation(self, dtype: torch.dtype) -> Approximation:
        if dtype not in self._approximations:
            self._approximations[dtype] = approximate(self.comparison, dtype)
        return self._approximations[dtype]

    def _listed(self, which: Tensor, exclude: Tensor | None, depth: int) -> Tensor | None:
        """The relevance (B, depth) of the first places; None where there are too many candidates for them."""
        known, approximation = (None, self.float32(depth)) if self._known is None else self._known
        rows = which.shape[0]
        bound, most = Bound(depth), self.memory // _CANDIDATE_BYTES
        pieces: list[tuple[Tensor, Tensor, Tensor]] = []
        held = 0
        for chunk in chunks(approximation, which, exclude, depth, self._scratch, known):
            bound.update(chunk)
            floor = candidate_floor(approximation, which, bound.kth(depth))
            for piece in chunk.candidates(floor):
                held += piece[0].shape[0]
                if held > most:
                    return None
                pieces.append(piece)
        row, column, product = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        if not chunk.whole:  # the bound has risen since the first chunks, and rows come once for each chunk
            keep = (product >= floor[row].float()).nonzero().squeeze(1)
            keep = keep[torch.argsort(row[keep], stable=True)]
            row, column, product = row[keep], column[keep], product[keep]
        each = torch.bincount(row, minlength=rows)
        longest = int(each.max())
        if rows * longest > most:
            return None
        taken = torch.arange(longest, device=row.device) < each[:, None]
        products = product.new_full((rows, longest), -torch.inf).masked_scatter_(taken, product)
        products, order = descending(products)
        columns = column.new_zeros(rows, longest).masked_scatter_(taken, column).gather(1, order)
        relevant = self.relevance.gallery_class[columns] == self.relevance.query_class[which, None]
        _decide(approximation, which, products, columns, relevant)
        return relevant[:, :depth]

    def _sorted(self, which: Tensor, exclude: Tensor | None, depth: int) -> Tensor:
        """Ranks in the first places of whole rows of the gallery."""
        approximation, size = self._approximation(torch.float64), self.comparison.size
        most = max(1, self.memory // (12 * size))
        parts, widest = [], 1
        for some in torch.split(which, most):
            relevant, unsure = self._sorted_relevance(approximation, some, depth)
            ranks = self._places(relevant)
            if unsure.shape[0]:
                ranks = self._replaced(ranks, unsure, some, depth)
            parts.append(ranks)
            widest = max(widest, ranks.shape[1])
        return torch.cat([torch.nn.functional.pad(p, (0, widest - p.shape[1]), value=self.beyond) for p in parts])

    def _sorted_relevance(self, approximation: Approximation, which: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Relevance (B, depth) of the first places, and the rows of which it is not sure."""
        size, rows = self.comparison.size, which.shape[0]
        keys = self._scratch.take(rows, size, torch.float64, which.device)
        torch.mm(approximation.queries[which].neg(), approximation.gallery[:size].T, out=keys)  # closest first
        farthest = 2.0 ** math.ceil(math.log2(4.0 * approximation.reach))  # its last bit is zero
        # products may be off by their slack, and by the bit that says what is relevant
        close = 2.0 * (approximation.error[which] + 2.0**-51 * approximation.reach)
        needed = min(size, depth + _BEYOND_DEPTH)
        relevant = torch.empty(rows, min(depth, size), dtype=torch.bool, device=which.device)
        unsure = torch.zeros(rows, dtype=torch.bool, device=which.device)
        at_once = max(1, torch.get_num_threads() * _SORTED_AT_ONCE // size)
        for start, stop, label in _runs(self.relevance.query_class[which]):
            flags = (self.relevance.gallery_class == label).to(torch.int64)
            for first in range(start, stop, at_once):
                part = slice(first, min(stop, first + at_once))
                some = keys[part]
                some.view(torch.int64).bitwise_and_(-2).bitwise_or_(flags)
                if self.comparison.same:
                    some.scatter_(1, which[part, None], farthest)
                head = _smallest(some, needed)
                bits = (head.view(torch.int64) & 1).bool()
                mixed = (bits[:, 1:] != bits[:, :-1]) & (head[:, 1:] - head[:, :-1] <= close[part, None])
                unsure[part] = mixed.any(dim=1)
                if needed < size:
                    unsure[part] |= head[:, -1] - head[:, depth - 1] <= close[part]
                relevant[part] = bits[:, : relevant.shape[1]]
        return relevant, unsure.nonzero().squeeze(1)

    def _replaced(self, ranks: Tensor, unsure: Tensor, which: Tensor, depth: int) -> Tensor:
        """`ranks` with those of rows `unsure` by exact scores."""
        items, valid = self.relevance.of(which[unsure])
        exclude = which[unsure] if self.comparison.same else None
        exact = []
        step = max(1, self.memory // (40 * self.comparison.size))
        for start in range(0, unsure.shape[0], step):
            part = slice(start, start + step)
            left_out = None if exclude is None else exclude[part]
            exact.append(sorted_ranks(self._approximation(torch.float64), which[unsure][part], items[part], left_out))
        found = torch.where(valid, torch.cat(exact), self.beyond)
        found = torch.where(found <= depth, found, self.beyond).sort(dim=1).values
        width = max(ranks.shape[1], int((found < self.beyond).sum(dim=1).max()))
        ranks = torch.nn.functional.pad(ranks, (0, width - ranks.shape[1]), value=self.beyond)
        found = torch.nn.functional.pad(found, (0, max(0, width - found.shape[1])), value=self.beyond)
        ranks[unsure] = found[:, :width]
        return ranks


def _runs(labels: Tensor) -> list[tuple[int, int, int]]:
    """(start, stop, label) of neighbors with one label."""
    values, length = torch.unique_consecutive(labels, return_counts=True)
    stops = length.cumsum(0).tolist()
    return [(stop - n, stop, v) for stop, n, v in zip(stops, length.tolist(), values.tolist(), strict=True)]


def _smallest(keys: Tensor, count: int) -> Tensor:
    """The `count` smallest of each row, ascending, (B, count); rows are overwritten."""
    if keys.device.type != "cpu":
        return keys.topk(count, dim=1, largest=False, sorted=True).values
    select = count < _WORTH_SELECTING * keys.shape[1]

    def work(rows: np.ndarray[Any, Any]) -> None:
        if select:
            rows.partition(count - 1, axis=1)
            rows[:, :count].sort(axis=1)
        else:
            rows.sort(axis=1)

    in_threads(keys, work)
    return keys[:, :count]


def _decide(approximation: Approximation, which: Tensor, products: Tensor, columns: Tensor, relevant: Tensor) -> None:
    """Put `relevant` (B, L) into the order of exact scores, in place; products (B, L) descending, columns (B, L)."""
    slack = approximation.slack(products[:, :1].double(), which)  # float32: the same for all products of a query
    close = products[:, :-1].double() - products[:, 1:].double() <= 2.0 * slack
    close &= products[:, 1:] > -torch.inf
    row, place = (close & (relevant[:, :-1] != relevant[:, 1:])).nonzero(as_tuple=True)
    if row.shape[0] == 0:
        return
    run = torch.cat([close.new_ones(close.shape[0], 1), ~close], dim=1).view(-1).cumsum(0)  # over all rows
    mixed = torch.zeros(int(run[-1]) + 1, dtype=torch.bool, device=run.device)
    mixed[run[row * relevant.shape[1] + place]] = True
    (member,) = mixed[run].nonzero(as_tuple=True)
    column = columns.view(-1)[member]
    score = approximation.comparison.exact(which[member // relevant.shape[1]], column)
    order = torch.argsort(column, stable=True)
    order = order[torch.argsort(score[order], descending=True, stable=True)]
    order = order[torch.argsort(run[member][order], stable=True)]
    relevant.view(-1)[member] = relevant.view(-1)[member][order]
