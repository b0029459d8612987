"""Counting, for one block of queries, how many candidates stand above each relevant item.

A product that is farther from the threshold of an item than its error is on a known side of it. The others are compared
by canonical scores.
"""

import torch
from torch import Tensor

from kinfold.metrics.approximation import Approximation

_PAIRS_AT_ONCE = 1 << 21


class Counting:
    """Counts (B, R) for items (B, R) of queries `which` (B,).

    at: where the items stand among the products, (B, R) float64. valid: which of the items count. full, first: the
    rank of all of them, or of the first one of each query, is wanted however deep it is.
    """

    def __init__(
        self,
        approximation: Approximation,
        which: Tensor,
        items: Tensor,
        at: Tensor,
        valid: Tensor,
        *,
        full: bool,
        first: bool,
    ) -> None:
        slack = approximation.slack(at, which)
        self.low, self.high = at - slack, at + slack
        self.approximation, self.which, self.items, self.valid = approximation, which, items, valid
        self.always = valid if full else torch.zeros_like(valid)
        if first and not full:  # what may be the first
            self.always = valid & (self.high >= torch.where(valid, self.low, -torch.inf).amax(dim=1, keepdim=True))
        self.useful = self.always
        self.counts = torch.zeros_like(items)

    def reach(self, kth: Tensor) -> None:
        """Drop items that are deeper than anybody asked: at least so many products reach `kth` (B,) as the depth is."""
        kth = kth.double()
        # with -inf as bound the slack is infinite too, and their difference not a number: everything counts
        reached = (kth - self.approximation.slack(kth, self.which)).nan_to_num(nan=-torch.inf)
        self.useful = self.always | (self.valid & (self.high >= reached[:, None]))

    @property
    def floor(self) -> Tensor:
        """The lowest product (B,) that can matter."""
        return torch.where(self.useful, self.low, torch.inf).amin(dim=1)

    def add(self, row: Tensor, column: Tensor, product: Tensor) -> None:
        """Count candidates, rows ascending."""
        if row.shape[0] == 0:
            return
        rows = slice(int(row[0]), int(row[-1]) + 1)
        # one sorted list for all rows: the row and, descending, the product in one number
        span = 4.0 * self.approximation.reach
        key, order = torch.sort(row.double() * span - product.double())
        at = torch.arange(rows.start, rows.stop, device=row.device).double()[:, None] * span
        before = torch.searchsorted(key, at - span / 2)
        above = torch.searchsorted(key, at - self.high[rows])
        until = torch.searchsorted(key, at - self.low[rows], right=True)
        self._add(rows, self.useful[rows], before, above, until, column[order])

    def add_lists(self, products: Tensor, columns: Tensor, complete: Tensor) -> None:
        """Count the candidates of rows that are `complete` (B,), given as lists (B, k), products descending."""
        key = products.double().neg_()
        start = torch.arange(key.shape[0], device=key.device)[:, None] * key.shape[1]
        above = torch.searchsorted(key, -self.high) + start
        until = torch.searchsorted(key, -self.low, right=True) + start
        self._add(slice(0, key.shape[0]), self.useful & complete[:, None], start, above, until, columns.flatten())

    def ranks(self, beyond: int) -> Tensor:
        """(B, R), `beyond` where an item is deeper than anybody asked."""
        return torch.where(self.useful, self.counts + 1, beyond)

    def _add(self, rows: slice, useful: Tensor, before: Tensor, above: Tensor, until: Tensor, columns: Tensor) -> None:
        """Candidates [before, above) of the sorted list `columns` are above an item, [above, until) may be."""
        self.counts[rows] += torch.where(useful, above - before, 0)
        unsure = torch.where(useful, until - above, 0).flatten()
        (item,) = (unsure > 0).nonzero(as_tuple=True)
        if item.shape[0] == 0:
            return
        sizes, above = unsure[item], above.flatten()[item]
        piece = (sizes.cumsum(0) - sizes) // _PAIRS_AT_ONCE
        lengths = torch.unique_consecutive(piece, return_counts=True)[1].tolist()
        offset = rows.start * self.items.shape[1]
        for part in zip(item.split(lengths), sizes.split(lengths), above.split(lengths), strict=True):
            self._decide(offset + part[0], part[1], part[2], columns)

    def _decide(self, item: Tensor, sizes: Tensor, above: Tensor, columns: Tensor) -> None:
        """Compare `sizes` candidates from `above` on with each item (flat index) by canonical scores."""
        owner = torch.arange(item.shape[0], device=item.device).repeat_interleave(sizes)
        step = torch.arange(owner.shape[0], device=owner.device) - (sizes.cumsum(0) - sizes)[owner]
        candidate, relevant = columns[above[owner] + step], self.items.flatten()[item]
        other = candidate != relevant[owner]  # an item is not above itself
        owner, candidate = owner[other], candidate[other]
        if owner.shape[0] == 0:
            return
        needed, back = torch.unique(owner, return_inverse=True)
        query = self.which[item // self.items.shape[1]]
        exact = self.approximation.comparison.exact
        theirs = exact(query[needed], relevant[needed])[back]
        own = exact(query[owner], candidate)
        higher = (own > theirs) | ((own == theirs) & (candidate < relevant[owner]))
        self.counts.view(-1).index_add_(0, item[owner], higher.to(self.counts.dtype))
