"""Exact nearest neighbors: fast products propose candidates, exact scores order them."""

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.fast_products import FastProducts, build_fast_products
from kinfold.metrics._ranking.kth_bound import KthLowerBound
from kinfold.metrics._ranking.product_timing import time_products
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.scan import BufferPool, choose_block_size, scan_gallery


class NeighborSearch:
    """Nearest neighbors of any queries of a set.

    It starts with bfloat16 products where they are fast, and continues with float32 products if bfloat16 leaves too
    many candidates.

    Args:
        query_gallery: The rows.
        memory_limit: Bytes for a block of products, and for candidates.
        dtype: The type of the products; None chooses it.
    """

    def __init__(self, query_gallery: QueryGallery, memory_limit: int, dtype: torch.dtype | None = None) -> None:
        self.query_gallery, self.memory_limit, self._dtype = query_gallery, memory_limit, dtype
        self._products: FastProducts | None = None
        self._buffers = BufferPool()

    def search(self, query_ids: Tensor, exclude: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
        """Return exact scores and columns (B, k), closest first; `exclude` (B,) is left out by each query."""
        device, total = query_ids.device, query_ids.shape[0]
        scores = torch.empty(total, k, dtype=torch.float64, device=device)
        columns = torch.empty(total, k, dtype=torch.int64, device=device)
        size = self.query_gallery.size
        if self._dtype is None:
            is_large = size > tuning.MIN_ROWS_PER_NEIGHBOR * k
            self._dtype = torch.bfloat16 if torch.bfloat16 in time_products(device) and is_large else torch.float32
        start, rows = 0, choose_block_size(size, self._dtype, self.memory_limit)
        most = self.memory_limit // tuning.CANDIDATE_BYTES
        while start < total:
            if self._products is None:
                self._products = build_fast_products(self.query_gallery, self._dtype)
            part = slice(start, min(total, start + rows))
            block = query_ids[part]
            count = block.shape[0]
            limit = most
            if self._dtype != torch.float32:
                limit = min(most, tuning.MAX_CANDIDATES_PER_NEIGHBOR * k * count)
            left_out = None if exclude is None else exclude[part]
            nearest = _search_block(self._products, block, left_out, k, limit if count > 1 else None, self._buffers)
            if nearest is not None:
                scores[part], columns[part] = nearest
                start += count
            elif self._dtype == torch.bfloat16:  # too many candidates: continue with float32
                self._dtype, self._products = torch.float32, None
                rows = choose_block_size(size, self._dtype, self.memory_limit)
            else:  # too many with float32 too: fewer queries at a time
                rows = max(1, count // 4)
        return scores, columns


def _search_block(
    products: FastProducts, query_ids: Tensor, exclude: Tensor | None, k: int, limit: int | None, buffers: BufferPool
) -> tuple[Tensor, Tensor] | None:
    """Return exact scores and columns (B, k) of one block; None if there are more than `limit` candidates."""
    bound = KthLowerBound(k)
    pieces: list[tuple[Tensor, Tensor, Tensor]] = []
    for chunk in scan_gallery(products, query_ids, exclude, k, buffers):
        bound.update(chunk)
        floor = products.lower_candidate_bound(bound.bound_kth(k), query_ids)
        pieces += chunk.find_candidates(floor)
        if limit is not None and sum(piece[0].shape[0] for piece in pieces) > limit:
            return None
    row, column, product = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    keep = product >= floor[row].float()  # the bound has risen since the first chunks
    row, column = row[keep], column[keep]
    score = products.query_gallery.exact_scores(query_ids[row], column)
    return take_first(row, column, score, query_ids.shape[0], k)


def take_first(row: Tensor, column: Tensor, score: Tensor, rows: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the first k candidates of each row by (score descending, column ascending), (rows, k) each."""
    order = torch.argsort(column, stable=True)
    order = order[torch.argsort(score[order], descending=True, stable=True)]
    order = order[torch.argsort(row[order], stable=True)]
    row = row[order]
    count = torch.bincount(row, minlength=rows)
    position = torch.arange(row.shape[0], device=row.device) - (count.cumsum(0) - count)[row]
    keep = position < k
    values = score.new_full((rows, k), -torch.inf)
    indices = torch.full((rows, k), -1, dtype=torch.int64, device=row.device)
    values[row[keep], position[keep]] = score[order][keep]
    indices[row[keep], position[keep]] = column[order][keep]
    return values, indices
