"""Counting, for one block of queries, how many candidates stand above each relevant item.

A product that is farther from the threshold of an item than its error is on a known side of it. The others are compared
by canonical scores. Where coarse products were scanned, candidates get better ones first: they are few.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from kinfold.metrics._ranking.approximation import Approximation
from kinfold.metrics._ranking.ordering import descending
from kinfold.metrics._ranking.scan import Bound

Columns: TypeAlias = Callable[[Tensor], Tensor]

_PAIRS_AT_ONCE = 1 << 21
_EVEN = 4  # lists of equal length may be this many times as long as needed


class Counting:
    """Counts (B, R) for items (B, R) of queries `which` (B,).

    scanned: the products by which candidates were found. counted: those by which they are counted, at least as good.
    at: where the items stand among the products, (B, R) float64. valid: which of the items count.
    """

    def __init__(
        self, scanned: Approximation, counted: Approximation, which: Tensor, items: Tensor, at: Tensor, valid: Tensor
    ) -> None:
        slack = counted.slack(at, which)
        self.low, self.high = at - slack, at + slack
        self.lowest = self.low if counted is scanned else at - scanned.slack(at, which)
        self.scanned, self.approximation, self.which, self.items, self.valid = scanned, counted, which, items, valid
        self.score = at - counted.offset[which, None]
        self.tiny = counted.tiny[which]
        # of each query the first relevant item, or what may be it
        self.first = valid & (self.high >= torch.where(valid, self.low, -torch.inf).amax(dim=1, keepdim=True))
        self.useful = valid
        self.counts = torch.zeros_like(items)

    def reach(self, bound: Bound, depth: int, depth_of_first: int) -> None:
        """Drop items that are deeper than `depth`, and the first item of a query where it is deeper than the other."""
        self.useful = self.valid & (self.high >= self._lowest(bound.kth(depth), slice(None)))
        if depth_of_first > depth:
            deep = self.useful.any(dim=1)
            self.useful |= self.first & deep[:, None]
            (row,) = (~deep).nonzero(as_tuple=True)
            reached = self.high[row] >= self._lowest(bound.kth(depth_of_first, row), row)
            self.useful[row] = self.first[row] & reached

    def _lowest(self, kth: Tensor, row: Tensor | slice) -> Tensor:
        """What the canonical score of such a product is at least, (B, 1)."""
        kth = kth.double()
        # with -inf as bound the slack is infinite too, and their difference not a number: everything counts
        return (kth - self.scanned.slack(kth, self.which[row])).nan_to_num(nan=-torch.inf)[:, None]

    @property
    def floor(self) -> Tensor:
        """The lowest scanned product (B,) that can matter."""
        return torch.where(self.useful, self.lowest, torch.inf).amin(dim=1)

    def add(self, row: Tensor, column: Tensor, product: Tensor) -> None:
        """Count candidates, rows ascending."""
        if row.shape[0] == 0:
            return
        if self.approximation is not self.scanned:
            product = self.approximation.pairs(self.which[row], column)
        rows = slice(int(row[0]), int(row[-1]) + 1)
        each = torch.bincount(row - rows.start)
        longest = int(each.max())
        if each.shape[0] * longest > _EVEN * row.shape[0]:
            self._add_uneven(rows, row, column, product)
            return
        # a list for each row, all sorted at once; which column stands at a place is asked for few of them
        first = each.cumsum(0) - each
        lists = product.new_full((each.shape[0], longest), -torch.inf)
        lists.masked_scatter_(torch.arange(longest, device=row.device) < each[:, None], product)
        ordered, order = descending(lists)
        key, places = ordered.double().neg_(), order.view(-1)
        start = torch.arange(key.shape[0], device=key.device)[:, None] * longest
        above = torch.searchsorted(key, -self.high[rows]) + start
        until = torch.searchsorted(key, -self.low[rows], right=True) + start

        def columns(at: Tensor) -> Tensor:
            return column[first[at // longest] + places[at]]

        self._add(rows, self.useful[rows], start, above, until, columns)

    def _add_uneven(self, rows: slice, row: Tensor, column: Tensor, product: Tensor) -> None:
        """One sorted list for all rows, where lists of equal length would be mostly empty."""
        span = 4.0 * self.approximation.reach  # the row and, descending, the product in one number
        key, order = torch.sort(row.double() * span - product.double())
        at = torch.arange(rows.start, rows.stop, device=row.device).double()[:, None] * span
        before = torch.searchsorted(key, at - span / 2)
        above = torch.searchsorted(key, at - self.high[rows])
        until = torch.searchsorted(key, at - self.low[rows], right=True)
        self._add(rows, self.useful[rows], before, above, until, lambda at: column[order[at]])

    def ranks(self, beyond: int) -> Tensor:
        """(B, R), `beyond` where an item is deeper than anybody asked."""
        return torch.where(self.useful, self.counts + 1, beyond)

    def _add(self, rows: slice, useful: Tensor, before: Tensor, above: Tensor, until: Tensor, columns: Columns) -> None:
        """Candidates [before, above) of the sorted list are above an item, [above, until) may be; `columns` tells which
        gallery row stands at a place of the list."""
        self.counts[rows] += torch.where(useful, above - before, 0)
        unsure = torch.where(useful, until - above, 0).flatten()
        (item,) = (unsure > 0).nonzero(as_tuple=True)
        if item.shape[0] == 0:
            return
        sizes, above = unsure[item], above.flatten()[item]
        piece = (sizes.cumsum(0) - sizes) // _PAIRS_AT_ONCE
        lengths = torch.unique_consecutive(piece, return_counts=True)[1].tolist()
        offset = rows.start * self.items.shape[1]
        for some, size, at in zip(*(torch.split(part, lengths) for part in (item, sizes, above)), strict=True):
            self._decide(offset + some, size, at, columns)

    def _decide(self, item: Tensor, sizes: Tensor, above: Tensor, columns: Columns) -> None:
        """Compare `sizes` candidates from `above` on with each item (flat index) by canonical scores."""
        owner = torch.arange(item.shape[0], device=item.device).repeat_interleave(sizes)
        step = torch.arange(owner.shape[0], device=owner.device) - (sizes.cumsum(0) - sizes)[owner]
        candidate, relevant = columns(above[owner] + step), self.items.flatten()[item]
        other = candidate != relevant[owner]  # an item is not above itself
        owner, candidate = owner[other], candidate[other]
        if owner.shape[0] == 0:
            return
        row = item // self.items.shape[1]
        own = self.approximation.comparison.exact(self.which[row][owner], candidate)
        theirs, error = self.score.flatten()[item], self.tiny[row]
        higher = own > (theirs + error)[owner]
        (close,) = ((own - theirs[owner]).abs() <= error[owner]).nonzero(as_tuple=True)
        if close.shape[0]:
            theirs_of, own = owner[close], own[close]
            needed, back = torch.unique(theirs_of, return_inverse=True)
            exact = self.approximation.comparison.exact(self.which[row][needed], relevant[needed])[back]
            first = candidate[close] < relevant[theirs_of]
            higher[close] = (own > exact) | ((own == exact) & first)
        self.counts.view(-1).index_add_(0, item[owner], higher.to(self.counts.dtype))
