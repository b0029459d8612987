"""Count, for a block of queries, the gallery rows that rank above each relevant item.

A product that differs from the threshold of an item by more than its error bound is on a known side of it. The others
are compared by exact scores. Candidates of an int8 scan get float32 products first: they are few.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.fast_products import FastProducts
from kinfold.metrics._ranking.kth_bound import KthLowerBound
from kinfold.metrics._ranking.row_sorting import sort_descending

ColumnLookup: TypeAlias = Callable[[Tensor], Tensor]


class RankCounter:
    """Counts of the candidates above each relevant item.

    Args:
        scanned: The products of the scan, which find candidates.
        counted: The products that candidates are counted by, at least as exact as `scanned`.
        query_ids: (B,).
        items: Gallery indices of the relevant items, (B, R).
        thresholds: The exact scores of the items on the scale of the products, (B, R) float64.
        valid: Which of the items are no padding, (B, R).
    """

    def __init__(
        self,
        scanned: FastProducts,
        counted: FastProducts,
        query_ids: Tensor,
        items: Tensor,
        thresholds: Tensor,
        valid: Tensor,
    ) -> None:
        error = counted.bound_error(thresholds, query_ids)
        self.scanned, self.counted, self.query_ids, self.items, self.valid = scanned, counted, query_ids, items, valid
        # products above `high` are above the item, those below `low` are not
        self.low, self.high = thresholds - error, thresholds + error
        same = counted is scanned
        self.scan_low = self.low if same else thresholds - scanned.bound_error(thresholds, query_ids)
        self.score = thresholds - counted.offset[query_ids, None]
        self.score_error = counted.exact_error[query_ids]
        # items that may be the first relevant one of their query
        self.maybe_first = valid & (self.high >= torch.where(valid, self.low, -torch.inf).amax(dim=1, keepdim=True))
        self.needed = valid
        self.counts = torch.zeros_like(items)

    def drop_deep_items(self, bound: KthLowerBound, depth: int, first_depth: int) -> None:
        """Drop items deeper than `depth`; the first item of a query is kept down to `first_depth`."""
        self.needed = self.valid & (self.high >= self._bound_kth_score(bound.bound_kth(depth), slice(None)))
        if first_depth > depth:
            has_item = self.needed.any(dim=1)
            self.needed |= self.maybe_first & has_item[:, None]
            (row,) = (~has_item).nonzero(as_tuple=True)
            reached = self.high[row] >= self._bound_kth_score(bound.bound_kth(first_depth, row), row)
            self.needed[row] = self.maybe_first[row] & reached

    def _bound_kth_score(self, kth: Tensor, row: Tensor | slice) -> Tensor:
        """Return the least exact score of a row with product `kth`, (B, 1)."""
        kth = kth.double()
        # -inf minus an infinite error is NaN: then every item is kept
        return (kth - self.scanned.bound_error(kth, self.query_ids[row])).nan_to_num(nan=-torch.inf)[:, None]

    @property
    def floor(self) -> Tensor:
        """The lowest scanned product (B,) that can matter."""
        return torch.where(self.needed, self.scan_low, torch.inf).amin(dim=1)

    def add_candidates(self, row: Tensor, column: Tensor, product: Tensor) -> None:
        """Count candidates (T,), rows ascending."""
        if row.shape[0] == 0:
            return
        if self.counted is not self.scanned:
            product = self.counted.multiply_pairs(self.query_ids[row], column)
        rows = slice(int(row[0]), int(row[-1]) + 1)
        lengths = torch.bincount(row - rows.start)
        longest = int(lengths.max())
        if lengths.shape[0] * longest > tuning.MAX_LIST_PADDING * row.shape[0]:
            self._add_in_one_list(rows, row, column, product)
            return
        # one padded list per row, all sorted at once; the column at a position is looked up for few of them
        first = lengths.cumsum(0) - lengths
        lists = product.new_full((lengths.shape[0], longest), -torch.inf)
        lists.masked_scatter_(torch.arange(longest, device=row.device) < lengths[:, None], product)
        ordered, order = sort_descending(lists)
        key, former_position = ordered.double().neg_(), order.view(-1)
        start = torch.arange(key.shape[0], device=key.device)[:, None] * longest
        above = torch.searchsorted(key, -self.high[rows]) + start
        until = torch.searchsorted(key, -self.low[rows], right=True) + start

        def look_up(position: Tensor) -> Tensor:
            return column[first[position // longest] + former_position[position]]

        self._add_sorted(rows, self.needed[rows], start, above, until, look_up)

    def _add_in_one_list(self, rows: slice, row: Tensor, column: Tensor, product: Tensor) -> None:
        """Count in one sorted list for all rows, where padded lists would be mostly empty."""
        span = 4.0 * self.counted.max_product  # a key contains the row and, descending, the product
        key, order = torch.sort(row.double() * span - product.double())
        base = torch.arange(rows.start, rows.stop, device=row.device).double()[:, None] * span
        start = torch.searchsorted(key, base - span / 2)
        above = torch.searchsorted(key, base - self.high[rows])
        until = torch.searchsorted(key, base - self.low[rows], right=True)
        self._add_sorted(rows, self.needed[rows], start, above, until, lambda position: column[order[position]])

    def get_ranks(self, unranked: int) -> Tensor:
        """Return the ranks (B, R), `unranked` for items that are deeper than needed."""
        return torch.where(self.needed, self.counts + 1, unranked)

    def _add_sorted(
        self, rows: slice, needed: Tensor, start: Tensor, above: Tensor, until: Tensor, look_up: ColumnLookup
    ) -> None:
        """Count candidates [start, above) of a sorted list as above an item, and decide on [above, until)."""
        self.counts[rows] += torch.where(needed, above - start, 0)
        undecided = torch.where(needed, until - above, 0).flatten()
        (item,) = (undecided > 0).nonzero(as_tuple=True)
        if item.shape[0] == 0:
            return
        sizes, above = undecided[item], above.flatten()[item]
        piece = (sizes.cumsum(0) - sizes) // tuning.PAIRS_PER_DECISION
        lengths = torch.unique_consecutive(piece, return_counts=True)[1].tolist()
        offset = rows.start * self.items.shape[1]
        for part, size, first in zip(*(torch.split(t, lengths) for t in (item, sizes, above)), strict=True):
            self._decide_by_exact_scores(offset + part, size, first, look_up)

    def _decide_by_exact_scores(self, item: Tensor, sizes: Tensor, above: Tensor, look_up: ColumnLookup) -> None:
        """Compare each item (flat index) with the `sizes` candidates from position `above` on."""
        owner = torch.arange(item.shape[0], device=item.device).repeat_interleave(sizes)
        step = torch.arange(owner.shape[0], device=owner.device) - (sizes.cumsum(0) - sizes)[owner]
        candidate, relevant = look_up(above[owner] + step), self.items.flatten()[item]
        is_other = candidate != relevant[owner]  # an item is not above itself
        owner, candidate = owner[is_other], candidate[is_other]
        if owner.shape[0] == 0:
            return
        row = item // self.items.shape[1]
        query_gallery = self.counted.query_gallery
        candidate_score = query_gallery.exact_scores(self.query_ids[row][owner], candidate)
        item_score, error = self.score.flatten()[item], self.score_error[row]
        higher = candidate_score > (item_score + error)[owner]
        (close,) = ((candidate_score - item_score[owner]).abs() <= error[owner]).nonzero(as_tuple=True)
        if close.shape[0]:
            # thresholds are not exact scores to the last bit: compute those of the items too
            close_owner, candidate_score = owner[close], candidate_score[close]
            needed, inverse = torch.unique(close_owner, return_inverse=True)
            exact = query_gallery.exact_scores(self.query_ids[row][needed], relevant[needed])[inverse]
            smaller_index = candidate[close] < relevant[close_owner]
            higher[close] = (candidate_score > exact) | ((candidate_score == exact) & smaller_index)
        self.counts.view(-1).index_add_(0, item[owner], higher.to(self.counts.dtype))
