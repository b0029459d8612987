"""Ranks of relevant items from the first places of a ranking.

For queries with so many relevant items that counting the rows above each of them would cost more than the ranking
itself. There are three ways to the same ranks, by the number of places that are needed (`depth`):

- few: the nearest neighbors, each with its exact score;
- up to a part of the gallery: candidates from float32 products, sorted. Exact scores decide where products that are
  closer than their error belong to relevant and other items. Among relevant items the order does not matter;
- more: float64 products of the whole gallery, sorted, each with its relevance in its last bit. If two of them are
  closer than their error and only one is relevant, the query is ranked by exact scores (`full_sort`).
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.fast_products import FastProducts, build_fast_products
from kinfold.metrics._ranking.full_sort import rank_by_sorting
from kinfold.metrics._ranking.kth_bound import KthLowerBound
from kinfold.metrics._ranking.nearest import NeighborSearch
from kinfold.metrics._ranking.product_timing import time_products
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.relevance import Relevance
from kinfold.metrics._ranking.row_sorting import apply_in_threads, sort_descending
from kinfold.metrics._ranking.scan import BufferPool, scan_gallery


class TopRanker:
    """Ranks of the relevant items at the top of the ranking of each query.

    Args:
        query_gallery: The rows.
        relevance: The relevant items.
        memory_limit: Bytes for a block of products, and for candidates.
        unranked: The rank that fills rows with fewer relevant items at the top.
    """

    def __init__(self, query_gallery: QueryGallery, relevance: Relevance, memory_limit: int, unranked: int) -> None:
        self.query_gallery, self.relevance = query_gallery, relevance
        self.memory_limit, self.unranked = memory_limit, unranked
        self._neighbor_search = NeighborSearch(query_gallery, memory_limit)
        self._buffers = BufferPool()
        self._products: dict[torch.dtype, FastProducts] = {}
        self._all_products: tuple[Tensor, FastProducts] | None = None
        self._first_search_depth = tuning.FIRST_SEARCH_DEPTH
        self._has_fast_bfloat16 = torch.bfloat16 in time_products(query_gallery.gallery.device)

    def selects_candidates(self, depth: int) -> bool:
        """Whether so many places are found by float32 products."""
        return not self._searches_neighbors(depth) and depth <= tuning.SELECTED_SHARE * self.query_gallery.size

    def get_float32_products(self, depth: int) -> FastProducts:
        """Return the products that find so many places.

        The deeper, the more products are close to each other, and the more exact scores are saved by less error.
        """
        products = self._get_products(torch.float32)
        is_deep = depth >= tuning.MIN_DEPTH_FOR_DEEP_PIECE and products.queries.shape[1] > 2 * tuning.TOP_PIECE
        piece = tuning.DEEP_TOP_PIECE if is_deep else tuning.TOP_PIECE
        return products.split_features(products.queries.shape[1] // piece)

    def use_all_products(self, matrix: Tensor, products: FastProducts) -> None:
        """Use float32 products of a set with itself that were computed beforehand."""
        self._all_products = matrix, products

    @property
    def has_all_products(self) -> bool:
        """Whether all products were computed beforehand."""
        return self._all_products is not None

    def _searches_neighbors(self, depth: int) -> bool:
        is_large = self.query_gallery.size > tuning.MIN_ROWS_PER_NEIGHBOR * depth
        return depth == 1 or (depth <= tuning.EXACT_TOP_DEPTH and self._has_fast_bfloat16 and is_large)

    def rank(self, query_ids: Tensor, depth: int, first_depth: int) -> Tensor:
        """Return the ranks (B, W) of relevant items, ascending, filled with `unranked`.

        All ranks down to `depth` are present, and that of the first relevant item down to `first_depth`. Deeper ranks
        may be present, and are correct.
        """
        # most queries have a relevant item near them; where the rest is not much deeper, one search is enough
        reach = first_depth if first_depth <= 2 * self._first_search_depth else max(depth, self._first_search_depth)
        ranks = self._rank_top(query_ids, reach)
        if reach >= first_depth:
            return ranks
        (missing,) = (ranks[:, 0] >= self.unranked).nonzero(as_tuple=True)
        many_missing = missing.shape[0] > tuning.MAX_MISSING_SHARE * query_ids.shape[0]
        if many_missing and first_depth <= tuning.SELECTED_SHARE * self.query_gallery.size:
            self._first_search_depth = first_depth
        while missing.shape[0] and reach < first_depth:
            reach = min(first_depth, tuning.DEEPER_FACTOR * reach)
            ranks[missing, 0] = self._rank_top(query_ids[missing], reach)[:, 0]
            missing = missing[ranks[missing, 0] >= self.unranked]
        return ranks

    def _rank_top(self, query_ids: Tensor, depth: int) -> Tensor:
        depth = min(depth, self.query_gallery.size)
        exclude = query_ids if self.query_gallery.is_same_set else None
        if self._searches_neighbors(depth):
            columns = self._neighbor_search.search(query_ids, exclude, depth)[1]
            query_class = self.relevance.query_class[query_ids, None]
            return self._rank_relevant(self.relevance.gallery_class[columns] == query_class)
        if self.selects_candidates(depth):
            relevant = self._select_top(query_ids, exclude, depth)
            if relevant is not None:
                return self._rank_relevant(relevant)
        return self._rank_by_sorted_rows(query_ids, depth)

    def _rank_relevant(self, relevant: Tensor) -> Tensor:
        """Return the ranks (B, W) of relevant items from the relevance (B, depth) of the first places."""
        row, position = relevant.nonzero(as_tuple=True)
        counts = torch.bincount(row, minlength=relevant.shape[0])
        ranks = position.new_full((relevant.shape[0], max(1, int(counts.max()))), self.unranked)
        ranks.masked_scatter_(torch.arange(ranks.shape[1], device=row.device) < counts[:, None], position + 1)
        return ranks

    def _get_products(self, dtype: torch.dtype) -> FastProducts:
        if dtype not in self._products:
            self._products[dtype] = build_fast_products(self.query_gallery, dtype)
        return self._products[dtype]

    def _select_top(self, query_ids: Tensor, exclude: Tensor | None, depth: int) -> Tensor | None:
        """Return the relevance (B, depth) of the first places; None if there are too many candidates for them."""
        matrix, products = (
            (None, self.get_float32_products(depth)) if self._all_products is None else self._all_products
        )
        rows = query_ids.shape[0]
        bound, most = KthLowerBound(depth), self.memory_limit // tuning.TOP_CANDIDATE_BYTES
        pieces: list[tuple[Tensor, Tensor, Tensor]] = []
        candidates = 0
        for chunk in scan_gallery(products, query_ids, exclude, depth, self._buffers, matrix):
            bound.update(chunk)
            floor = products.lower_candidate_bound(bound.bound_kth(depth), query_ids)
            for piece in chunk.find_candidates(floor):
                candidates += piece[0].shape[0]
                if candidates > most:
                    return None
                pieces.append(piece)
        row, column, product = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        if not chunk.is_complete:  # the bound has risen since the first chunks, and rows repeat in each chunk
            keep = (product >= floor[row].float()).nonzero().squeeze(1)
            keep = keep[torch.argsort(row[keep], stable=True)]
            row, column, product = row[keep], column[keep], product[keep]
        counts = torch.bincount(row, minlength=rows)
        longest = int(counts.max())
        if rows * longest > most:
            return None
        occupied = torch.arange(longest, device=row.device) < counts[:, None]
        lists = product.new_full((rows, longest), -torch.inf).masked_scatter_(occupied, product)
        lists, order = sort_descending(lists)
        columns = column.new_zeros(rows, longest).masked_scatter_(occupied, column).gather(1, order)
        relevant = self.relevance.gallery_class[columns] == self.relevance.query_class[query_ids, None]
        _decide_close_runs(products, query_ids, lists, columns, relevant)
        return relevant[:, :depth]

    def _rank_by_sorted_rows(self, query_ids: Tensor, depth: int) -> Tensor:
        """Rank by sorting whole rows of the gallery."""
        products, size = self._get_products(torch.float64), self.query_gallery.size
        step = max(1, self.memory_limit // (tuning.SORTED_ROW_BYTES * size))
        parts, widest = [], 1
        for some_ids in torch.split(query_ids, step):
            relevant, undecided = self._sort_relevance(products, some_ids, depth)
            ranks = self._rank_relevant(relevant)
            if undecided.shape[0]:
                ranks = self._rank_exactly(ranks, undecided, some_ids, depth)
            parts.append(ranks)
            widest = max(widest, ranks.shape[1])
        return torch.cat([_pad_ranks(ranks, widest, self.unranked) for ranks in parts])

    def _sort_relevance(self, products: FastProducts, query_ids: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Return the relevance (B, depth) of the first places, and the rows for which products do not decide it."""
        size, rows = self.query_gallery.size, query_ids.shape[0]
        keys = self._buffers.take(rows, size, torch.float64, query_ids.device)
        torch.mm(products.queries[query_ids].neg(), products.gallery[:size].T, out=keys)  # closest first
        farthest = 2.0 ** math.ceil(math.log2(4.0 * products.max_product))  # its last bit is zero
        # products may be off by their error, and by the bit that holds the relevance
        tolerance = 2.0 * (products.error[query_ids] + 2.0**-51 * products.max_product)
        needed = min(size, depth + tuning.EXTRA_DEPTH)
        relevant = torch.empty(rows, min(depth, size), dtype=torch.bool, device=query_ids.device)
        undecided = torch.zeros(rows, dtype=torch.bool, device=query_ids.device)
        step = max(1, torch.get_num_threads() * tuning.SORTED_ENTRIES // size)
        for start, stop, label in _find_runs(self.relevance.query_class[query_ids]):
            flags = (self.relevance.gallery_class == label).to(torch.int64)
            for first in range(start, stop, step):
                part = slice(first, min(stop, first + step))
                part_keys = keys[part]
                part_keys.view(torch.int64).bitwise_and_(-2).bitwise_or_(flags)
                if self.query_gallery.is_same_set:
                    part_keys.scatter_(1, query_ids[part, None], farthest)
                top = _sort_smallest(part_keys, needed)
                bits = (top.view(torch.int64) & 1).bool()
                close = top[:, 1:] - top[:, :-1] <= tolerance[part, None]
                undecided[part] = ((bits[:, 1:] != bits[:, :-1]) & close).any(dim=1)
                if needed < size:
                    undecided[part] |= top[:, -1] - top[:, depth - 1] <= tolerance[part]
                relevant[part] = bits[:, : relevant.shape[1]]
        return relevant, undecided.nonzero().squeeze(1)

    def _rank_exactly(self, ranks: Tensor, undecided: Tensor, query_ids: Tensor, depth: int) -> Tensor:
        """Return `ranks` with those of the rows `undecided` by exact scores."""
        ids = query_ids[undecided]
        items, valid = self.relevance.list_items(ids)
        step = max(1, self.memory_limit // (tuning.EXACT_SORT_BYTES * self.query_gallery.size))
        parts = []
        for start in range(0, undecided.shape[0], step):
            part = slice(start, start + step)
            exclude = ids[part] if self.query_gallery.is_same_set else None
            parts.append(rank_by_sorting(self._get_products(torch.float64), ids[part], items[part], exclude))
        exact = torch.where(valid, torch.cat(parts), self.unranked)
        exact = torch.where(exact <= depth, exact, self.unranked).sort(dim=1).values
        width = max(ranks.shape[1], int((exact < self.unranked).sum(dim=1).max()))
        ranks = _pad_ranks(ranks, width, self.unranked)
        ranks[undecided] = _pad_ranks(exact, width, self.unranked)[:, :width]
        return ranks


def _pad_ranks(ranks: Tensor, width: int, unranked: int) -> Tensor:
    return torch.nn.functional.pad(ranks, (0, max(0, width - ranks.shape[1])), value=unranked)


def _find_runs(labels: Tensor) -> list[tuple[int, int, int]]:
    """Return (start, stop, label) of runs of equal labels."""
    values, lengths = torch.unique_consecutive(labels, return_counts=True)
    stops = lengths.cumsum(0).tolist()
    return [(stop - n, stop, v) for stop, n, v in zip(stops, lengths.tolist(), values.tolist(), strict=True)]


def _sort_smallest(keys: Tensor, count: int) -> Tensor:
    """Return the `count` smallest of each row, ascending, (B, count); rows are overwritten."""
    if keys.device.type != "cpu":
        return keys.topk(count, dim=1, largest=False, sorted=True).values
    use_partition = count < tuning.PARTITION_SHARE * keys.shape[1]

    def sort(rows: np.ndarray[Any, Any]) -> None:
        if use_partition:
            rows.partition(count - 1, axis=1)
            rows[:, :count].sort(axis=1)
        else:
            rows.sort(axis=1)

    apply_in_threads(keys, sort)
    return keys[:, :count]


def _decide_close_runs(
    products: FastProducts, query_ids: Tensor, values: Tensor, columns: Tensor, relevant: Tensor
) -> None:
    """Bring `relevant` (B, L) into the order of exact scores, in place.

    values: products, (B, L), descending; columns: (B, L).
    """
    error = products.bound_error(values[:, :1].double(), query_ids)  # float32: the same for all products of a query
    close = values[:, :-1].double() - values[:, 1:].double() <= 2.0 * error
    close &= values[:, 1:] > -torch.inf
    row, position = (close & (relevant[:, :-1] != relevant[:, 1:])).nonzero(as_tuple=True)
    if row.shape[0] == 0:
        return
    run = torch.cat([close.new_ones(close.shape[0], 1), ~close], dim=1).view(-1).cumsum(0)  # over all rows
    is_mixed = torch.zeros(int(run[-1]) + 1, dtype=torch.bool, device=run.device)
    is_mixed[run[row * relevant.shape[1] + position]] = True
    (member,) = is_mixed[run].nonzero(as_tuple=True)
    column = columns.view(-1)[member]
    score = products.query_gallery.exact_scores(query_ids[member // relevant.shape[1]], column)
    order = torch.argsort(column, stable=True)
    order = order[torch.argsort(score[order], descending=True, stable=True)]
    order = order[torch.argsort(run[member][order], stable=True)]
    relevant.view(-1)[member] = relevant.view(-1)[member][order]
