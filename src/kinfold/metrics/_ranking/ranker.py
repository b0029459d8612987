"""The exact rank of every relevant item, from which all retrieval metrics follow.

The rank of an item is one plus the number of gallery rows with a higher exact score, or with an equal one and a smaller
index. The package docstring explains the ways to find it; `Ranker` chooses among them.
"""

import time
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.counting import RankCounter
from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics._ranking.fast_products import FastProducts, build_fast_products
from kinfold.metrics._ranking.full_sort import rank_by_sorting
from kinfold.metrics._ranking.kth_bound import KthLowerBound
from kinfold.metrics._ranking.product_timing import time_products
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.relevance import Relevance
from kinfold.metrics._ranking.scan import BufferPool, choose_block_size, multiply_symmetric, scan_gallery
from kinfold.metrics._ranking.thresholds import compute_thresholds
from kinfold.metrics._ranking.top_ranks import TopRanker

UNRANKED = torch.iinfo(torch.int64).max >> 1  # the rank of items that are deeper than needed, and of padding


class Ranker:
    """Ranks of relevant items, block by block.

    Args:
        query_gallery: The rows.
        relevance: The relevant items of each query.
        depth: How deep the ranks are needed.
        memory_limit: Bytes for a block of products.
        dtype: The type of the products; None tries the fast ones and keeps the fastest.
    """

    def __init__(
        self,
        query_gallery: QueryGallery,
        relevance: Relevance,
        depth: RankDepth,
        memory_limit: int = tuning.MEMORY_LIMIT,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.query_gallery = query_gallery
        self.relevance = relevance
        self.depth = depth
        self.memory_limit = memory_limit
        self._dtype = dtype
        self._products: dict[torch.dtype, FastProducts] = {}
        self._product_times = time_products(query_gallery.gallery.device)
        self._choices = [dtype] if dtype is not None else [*self._product_times]
        is_deep = depth.resolve(int(relevance.size.max()), query_gallery.size)[0] > tuning.MAX_INT8_DEPTH
        is_wide = query_gallery.gallery.shape[1] > tuning.MAX_INT8_FEATURES
        if query_gallery.has_distances or is_wide or (is_deep and dtype is None):
            self._choices = [choice for choice in self._choices if choice != torch.int8]
        self._query_times: dict[torch.dtype, float] = {}  # seconds per query of the products that were tried
        self._trials: Counter[torch.dtype] = Counter()
        self._buffers = BufferPool()
        self._top_ranker = TopRanker(query_gallery, relevance, memory_limit, UNRANKED)
        self._all_products: Tensor | None = None  # of a small set with itself
        self._all_thresholds: Tensor | None = None  # of all queries, together with all products

    def rank_blocks(self, query_ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield queries (B,) and the ranks (B, R) of their relevant items, ascending, filled with UNRANKED.

        Args:
            query_ids: Queries in the order of `Relevance.order_queries`.
        """
        counts, size = self.relevance.counts, self.query_gallery.size
        block_size = choose_block_size(size, self._choices[-1], self.memory_limit)
        if query_ids.shape[0] < tuning.MIN_BLOCKS_FOR_TRIALS * block_size:
            self._choices = self._choices[-1:]  # too few blocks to try which product is the fastest
        if self._compute_all_products(query_ids):
            query_ids = query_ids.sort().values  # consecutive rows of the products need not be gathered
        start = 0
        while start < query_ids.shape[0]:
            block_size = choose_block_size(size, self._choices[-1], self.memory_limit)
            block = query_ids[start : start + block_size]
            class_size = int(counts[block].max()) + 1
            block = block[: max(1, (self.memory_limit >> 5) // class_size)]
            if self._top_ranker.has_all_products or self._uses_top(class_size):
                start += block.shape[0]
                depths = self.depth.resolve(int(counts[block].max()), size)
                yield block, self._top_ranker.rank(block, *depths)
                continue
            dtype = self._choose_product()
            self._get_products(dtype)
            items, valid = self.relevance.list_items(block)
            began = time.perf_counter()
            ranks = self._rank_items(block, items, valid, dtype).sort(dim=1).values
            seconds = (time.perf_counter() - began) / block.shape[0]
            self._query_times[dtype] = min(seconds, self._query_times.get(dtype, seconds))
            start += block.shape[0]
            yield block, ranks

    def _compute_all_products(self, query_ids: Tensor) -> bool:
        """Compute all products beforehand if that is half of the work: for a small set against itself."""
        size = self.query_gallery.size
        class_size = int(self.relevance.size.max())
        fits = size**2 * torch.float32.itemsize <= self.memory_limit
        if 2 * query_ids.shape[0] < size or torch.float32 not in self._choices or not fits:
            return False
        depth = self.depth.resolve(class_size, size)[0]
        uses_top = self._uses_top(class_size)
        has_many_features = self.query_gallery.gallery.shape[1] >= tuning.COUNTED_PIECE
        if uses_top and not (self._top_ranker.selects_candidates(depth) and has_many_features):
            return False
        products = self._top_ranker.get_float32_products(depth) if uses_top else self._get_products(torch.float32)
        if not uses_top and depth >= tuning.MIN_DEPTH_FOR_PIECES:
            products = products.split_features(products.queries.shape[1] // tuning.COUNTED_PIECE)
        matrix = multiply_symmetric(products, self.memory_limit)
        if matrix is None:
            return False
        if uses_top:
            self._top_ranker.use_all_products(matrix, products.as_symmetric())
            return True
        self._all_products = matrix
        self._choices = [torch.float32]
        self._products[torch.float32] = products.as_symmetric()
        # thresholds need queries of one class in sequence, rows of products do not
        table = query_ids.new_zeros(size, class_size, dtype=torch.float64)
        for block in torch.split(query_ids, tuning.MAX_QUERIES_PER_BLOCK):
            thresholds = self._get_thresholds(block, self.relevance.list_items(block)[0], products)
            table[block, : thresholds.shape[1]] = thresholds
        self._all_thresholds = table
        return True

    def _uses_top(self, class_size: int) -> bool:
        """Whether queries of classes up to `class_size` are ranked by the top of their ranking, or by counting."""
        if self._dtype is not None:  # the caller wants these products
            return class_size > tuning.MIN_RELEVANT_FOR_TOP
        size = self.query_gallery.size
        # if queries are too few to try products, a neighbor search by bfloat16 products is faster
        limit = tuning.NEAREST_DEPTH if len(self._choices) > 1 else tuning.NEAREST_DEPTH_OF_FEW
        is_shallow = max(self.depth.resolve(class_size, size)) <= limit
        if is_shallow or size <= tuning.SMALL_GALLERY or class_size > tuning.ALWAYS_TOP_RELEVANT:
            return True
        is_near = self.depth.full or self.depth.fixed <= tuning.MAX_DEPTH_PER_RELEVANT * class_size
        return class_size > tuning.MIN_RELEVANT_FOR_TOP and is_near

    def _get_thresholds(self, query_ids: Tensor, items: Tensor, products: FastProducts) -> Tensor:
        if self._all_thresholds is not None:
            return self._all_thresholds[query_ids, : items.shape[1]]
        return compute_thresholds(products, query_ids, items, self.relevance.query_class[query_ids])

    def _choose_product(self) -> torch.dtype:
        """Return the type of product for the next block.

        Each type is tried on two blocks, unless its products alone would take as long as another type took in all.
        Afterwards the fastest is used. The ranks are the same.
        """
        best = min(self._query_times.values(), default=float("inf"))
        entries = self.query_gallery.size * self.query_gallery.gallery.shape[1]
        for dtype in self._choices:
            least = tuning.MIN_BLOCK_TIME * self._product_times.get(dtype, 0.0) * entries
            if self._trials[dtype] < tuning.TRIALS_PER_PRODUCT and least < best:
                self._trials[dtype] += 1
                return dtype
        return min(self._query_times, key=lambda dtype: self._query_times[dtype])

    def _get_products(self, dtype: torch.dtype) -> FastProducts:
        if dtype not in self._products:
            self._products[dtype] = build_fast_products(self.query_gallery, dtype)
        return self._products[dtype]

    def _rank_items(self, query_ids: Tensor, items: Tensor, valid: Tensor, dtype: torch.dtype) -> Tensor:
        exclude = query_ids if self.query_gallery.is_same_set else None
        ranks = self._rank_by_counting(query_ids, items, valid, exclude, dtype)
        if ranks is None and dtype != torch.float32:
            ranks = self._rank_by_counting(query_ids, items, valid, exclude, torch.float32)
        if ranks is not None:
            return ranks
        products = self._get_products(torch.float64)
        step = max(1, self.memory_limit // (products.gallery.shape[0] * tuning.EXACT_SORT_BYTES))
        parts = [slice(start, start + step) for start in range(0, query_ids.shape[0], step)]
        sorted_ranks = [
            rank_by_sorting(products, query_ids[part], items[part], None if exclude is None else exclude[part])
            for part in parts
        ]
        return torch.where(valid, torch.cat(sorted_ranks), UNRANKED)

    def _rank_by_counting(
        self, query_ids: Tensor, items: Tensor, valid: Tensor, exclude: Tensor | None, dtype: torch.dtype
    ) -> Tensor | None:
        """Return the ranks (B, R), or None if too much of the gallery is above the lowest item that matters."""
        products, size = self._get_products(dtype), self.query_gallery.size
        thresholds = self._get_thresholds(query_ids, items, products)
        counted = self._get_products(torch.float32) if dtype == torch.int8 else products
        counter = RankCounter(products, counted, query_ids, items, thresholds, valid)
        depths = self.depth.resolve(int(valid.sum(dim=1).max()), size)
        bound, candidates = KthLowerBound(max(depths)), 0
        is_limited = depths[0] < size
        scan_depth = depths[0] if is_limited else 1
        for chunk in scan_gallery(products, query_ids, exclude, scan_depth, self._buffers, self._all_products):
            if is_limited:
                bound.update(chunk)
                counter.drop_deep_items(bound, *depths)
            for row, column, product in chunk.find_candidates(counter.floor):
                candidates += row.shape[0]
                most = max(tuning.MAX_CANDIDATE_SHARE * query_ids.shape[0] * size, tuning.ALWAYS_COUNTED)
                if candidates > most:
                    return None
                counter.add_candidates(row, column, product)
        return counter.get_ranks(UNRANKED)
