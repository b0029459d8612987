"""Counting, for one block of queries, how many candidates stand above each relevant item.

A product that is farther from the threshold of an item than its error is on a known side of it. The others are compared
by canonical scores.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.metrics.approximation import Approximation
from kinfold.metrics.scan import Bound

_PAIRS_AT_ONCE = 1 << 21
_EVEN = 4  # lists of equal length may be this many times as long as needed


@dataclass(frozen=True)
class Sorted:
    """Candidates of some rows in one list, row after row, each with the largest product first.

    length: places in it, of which some may be empty at the end of a row. row, column: what stands at a place.
    """

    length: int
    row: Callable[[Tensor], Tensor]
    column: Callable[[Tensor], Tensor]


class Counting:
    """Counts (B, R) for items (B, R) of queries `which` (B,).

    at: where the items stand among the products, (B, R) float64. valid: which of the items count.
    """

    def __init__(self, approximation: Approximation, which: Tensor, items: Tensor, at: Tensor, valid: Tensor) -> None:
        slack = approximation.slack(at, which)
        self.low, self.high = at - slack, at + slack
        self.approximation, self.which, self.items, self.valid = approximation, which, items, valid
        self.score = at - approximation.offset[which, None]
        self.tiny = approximation.tiny[which]
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
        return (kth - self.approximation.slack(kth, self.which[row])).nan_to_num(nan=-torch.inf)[:, None]

    @property
    def floor(self) -> Tensor:
        """The lowest product (B,) that can matter."""
        return torch.where(self.useful, self.low, torch.inf).amin(dim=1)

    def add(self, row: Tensor, column: Tensor, product: Tensor) -> None:
        """Count candidates, rows ascending."""
        if row.shape[0] == 0:
            return
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
        ordered, order = lists.sort(dim=1, descending=True)
        key, places = ordered.double().neg_(), order.view(-1)
        start = torch.arange(key.shape[0], device=key.device)[:, None] * longest
        above = torch.searchsorted(key, -self.high[rows]) + start
        until = torch.searchsorted(key, -self.low[rows], right=True) + start

        listed = Sorted(
            key.numel(),
            row=lambda at: at // longest + rows.start,
            column=lambda at: column[first[at // longest] + places[at]],
        )
        self._add(rows, start, above, until, listed)

    def _add_uneven(self, rows: slice, row: Tensor, column: Tensor, product: Tensor) -> None:
        """One sorted list for all rows, where lists of equal length would be mostly empty."""
        span = 4.0 * self.approximation.reach  # the row and, descending, the product in one number
        key, order = torch.sort(row.double() * span - product.double())
        at = torch.arange(rows.start, rows.stop, device=row.device).double()[:, None] * span
        before = torch.searchsorted(key, at - span / 2)
        above = torch.searchsorted(key, at - self.high[rows])
        until = torch.searchsorted(key, at - self.low[rows], right=True)
        listed = Sorted(key.numel(), row=lambda at: row[order[at]], column=lambda at: column[order[at]])
        self._add(rows, before, above, until, listed)

    def ranks(self, beyond: int) -> Tensor:
        """(B, R), `beyond` where an item is deeper than anybody asked."""
        return torch.where(self.useful, self.counts + 1, beyond)

    def _add(self, rows: slice, before: Tensor, above: Tensor, until: Tensor, listed: Sorted) -> None:
        """Candidates [before, above) of the list are above an item, [above, until) may be."""
        useful = self.useful[rows]
        self.counts[rows] += torch.where(useful, above - before, 0)
        unsure = torch.where(useful, until - above, 0).flatten()
        (item,) = (unsure > 0).nonzero(as_tuple=True)
        if item.shape[0] == 0:
            return
        sizes, above = unsure[item], above.flatten()[item]
        # several items may ask for one candidate: with more questions than candidates each is worked out once
        often = int(sizes.sum()) - item.shape[0] > listed.length
        scores = self._scores(above, sizes, listed) if often else None
        piece = (sizes.cumsum(0) - sizes) // _PAIRS_AT_ONCE
        lengths = torch.unique_consecutive(piece, return_counts=True)[1].tolist()
        offset = rows.start * self.items.shape[1]
        for some, size, at in zip(*(torch.split(part, lengths) for part in (item, sizes, above)), strict=True):
            self._decide(offset + some, size, at, listed, scores)

    def _scores(self, above: Tensor, sizes: Tensor, listed: Sorted) -> Tensor:
        """Canonical scores of the candidates in any of the ranges that begin at `above`, by their places."""
        steps = sizes.new_zeros(listed.length + 1)
        one = torch.ones_like(sizes)
        steps.index_add_(0, above, one).index_add_(0, above + sizes, -one)
        (place,) = (steps.cumsum(0)[:-1] > 0).nonzero(as_tuple=True)
        found = torch.zeros(listed.length, dtype=torch.float64, device=sizes.device)
        found[place] = self.approximation.comparison.exact(self.which[listed.row(place)], listed.column(place))
        return found

    def _decide(self, item: Tensor, sizes: Tensor, above: Tensor, listed: Sorted, scores: Tensor | None) -> None:
        """Compare `sizes` candidates from `above` on with each item (flat index) by canonical scores, which may be known
        by their places."""
        owner = torch.arange(item.shape[0], device=item.device).repeat_interleave(sizes)
        place = above[owner] + torch.arange(owner.shape[0], device=owner.device) - (sizes.cumsum(0) - sizes)[owner]
        candidate, relevant = listed.column(place), self.items.flatten()[item]
        other = candidate != relevant[owner]  # an item is not above itself
        owner, candidate = owner[other], candidate[other]
        if owner.shape[0] == 0:
            return
        row, exact = item // self.items.shape[1], self.approximation.comparison.exact
        own = exact(self.which[row][owner], candidate) if scores is None else scores[place[other]]
        theirs, error = self.score.flatten()[item], self.tiny[row]
        higher = own > (theirs + error)[owner]
        (close,) = ((own - theirs[owner]).abs() <= error[owner]).nonzero(as_tuple=True)
        if close.shape[0]:
            theirs_of, own = owner[close], own[close]
            needed, back = torch.unique(theirs_of, return_inverse=True)
            settled = exact(self.which[row][needed], relevant[needed])[back]
            first = candidate[close] < relevant[theirs_of]
            higher[close] = (own > settled) | ((own == settled) & first)
        self.counts.view(-1).index_add_(0, item[owner], higher.to(self.counts.dtype))
