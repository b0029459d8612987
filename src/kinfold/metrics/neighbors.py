"""Exact nearest neighbours by blocks: fast products propose, canonical scores decide."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from kinfold.metrics._ranking.approximation import Approximation, approximate, full_products
from kinfold.metrics._ranking.product_speed import product_speeds
from kinfold.metrics._ranking.query_gallery import Distance, QueryGallery, prepare_rows
from kinfold.metrics._ranking.scan import MEMORY, Bound, Scratch, chunks, rows_at_once
from kinfold.metrics.approximate_search import faiss_neighbors
from kinfold.metrics.inputs import Embeddings, as_rows

_CROWDED = 64  # candidates for each neighbour above which a finer product is better
_CANDIDATE_BYTES = 128  # that one candidate takes until it is ordered


def neighbors(
    queries: Embeddings,
    gallery: Embeddings | None = None,
    k: int = 100,
    distance: Distance = "cosine",
    *,
    exclude: Tensor | None = None,
    memory: int = MEMORY,
    device: torch.device | str | None = None,
    backend: Literal["exact", "faiss"] = "exact",
) -> tuple[Tensor, Tensor]:
    """The k nearest gallery rows of every query, closest first: values (Q, k) float64 and indices (Q, k).

    Values are similarities for "cosine" and "dot", distances for "euclidean"; equal ones come in the order of their
    indices. Without a gallery the queries are their own, and each leaves itself out, by index. `exclude` (Q,) names a
    gallery row that each query leaves out (-1 for none). With fewer than k rows to find, there are fewer columns.

    `memory` bounds the block of products that is held at a time, in bytes. `backend="faiss"` is an approximate search
    (a graph index of the installed faiss) for galleries of many millions; everything else here is exact.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.1]])
    >>> values, indices = neighbors(x, k=2)
    >>> indices
    tensor([[3, 2],
            [2, 3],
            [1, 3],
            [0, 2]])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    x, y = as_rows(queries, device), None if gallery is None else as_rows(gallery, device)
    comparison = prepare_rows(x, y, distance)
    if exclude is None and comparison.same:
        exclude = torch.arange(x.shape[0], device=comparison.gallery.device)
    if exclude is not None:
        exclude = torch.as_tensor(np.asarray(exclude) if not isinstance(exclude, Tensor) else exclude)
        exclude = exclude.to(comparison.gallery.device, torch.int64)
        if exclude.shape != (x.shape[0],):
            raise ValueError(f"exclude must hold one gallery index for each of {x.shape[0]} queries")
    if backend == "faiss":
        if memory != MEMORY:
            raise ValueError("memory bounds the blocks of the exact search: backend='faiss' would ignore it")
        return faiss_neighbors(comparison, k, exclude)
    if backend != "exact":
        raise ValueError(f"backend must be 'exact' or 'faiss', got {backend!r}")
    with full_products(comparison.gallery.device):
        return _neighbors(comparison, k, exclude, memory)


def _neighbors(
    comparison: QueryGallery, k: int, exclude: Tensor | None, memory: int, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    total, device = comparison.queries.shape[0], comparison.gallery.device
    available = comparison.size if exclude is None else comparison.size - int(bool((exclude >= 0).any()))
    k = min(k, available)
    if total * k == 0:
        empty = torch.empty(total, k, dtype=torch.float64, device=device)
        return empty, empty.to(torch.int64)
    scores, columns = Searcher(comparison, memory, dtype).search(torch.arange(total, device=device), exclude, k)
    return comparison.values(scores), columns


class Searcher:
    """Nearest neighbors of any queries of a comparison, chunk by chunk; products that tell too little are given up."""

    def __init__(self, comparison: QueryGallery, memory: int, dtype: torch.dtype | None = None) -> None:
        self.comparison, self.memory, self._dtype = comparison, memory, dtype
        self._approximation: Approximation | None = None
        self._scratch = Scratch()

    def search(self, queries: Tensor, exclude: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
        """Exact scores and columns (B, k) of `queries` (B,), closest first; `exclude` (B,) is left out by each."""
        device, total = queries.device, queries.shape[0]
        scores = torch.empty(total, k, dtype=torch.float64, device=device)
        columns = torch.empty(total, k, dtype=torch.int64, device=device)
        if self._dtype is None:  # among few rows a coarse product leaves too many candidates for what it saves
            coarse = torch.bfloat16 in product_speeds(device) and self.comparison.size > 128 * k
            self._dtype = torch.bfloat16 if coarse else torch.float32
        start, rows = 0, rows_at_once(self.comparison.size, self._dtype, self.memory)
        most = self.memory // _CANDIDATE_BYTES
        while start < total:
            if self._approximation is None:
                self._approximation = approximate(self.comparison, self._dtype)
            part = slice(start, min(total, start + rows))
            which = queries[part]
            limit = most if self._dtype == torch.float32 else min(most, _CROWDED * k * which.shape[0])
            left_out = None if exclude is None else exclude[part]
            found = _block(
                self._approximation, which, left_out, k, limit if which.shape[0] > 1 else None, self._scratch
            )
            if found is not None:
                scores[part], columns[part] = found
                start += which.shape[0]
            elif self._dtype == torch.bfloat16:  # it cannot tell these apart: go on with float32
                self._dtype, self._approximation = torch.float32, None
                rows = rows_at_once(self.comparison.size, self._dtype, self.memory)
            else:  # nor can float32
                rows = max(1, which.shape[0] // 4)
        return scores, columns


def _block(
    approximation: Approximation, which: Tensor, exclude: Tensor | None, k: int, limit: int | None, scratch: Scratch
) -> tuple[Tensor, Tensor] | None:
    """Canonical scores and columns (B, k) of one block; None where there are too many candidates."""
    bound = Bound(k)
    pieces: list[tuple[Tensor, Tensor, Tensor]] = []
    for chunk in chunks(approximation, which, exclude, k, scratch):
        bound.update(chunk)
        floor = candidate_floor(approximation, which, bound.kth(k))
        pieces += chunk.candidates(floor)
        if limit is not None and sum(piece[0].shape[0] for piece in pieces) > limit:
            return None
    row, column, product = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    keep = product >= floor[row].float()  # the bound has risen since the first chunks
    row, column = row[keep], column[keep]
    score = approximation.comparison.exact(which[row], column)
    return _first(row, column, score, which.shape[0], k)


def candidate_floor(approximation: Approximation, which: Tensor, kth: Tensor) -> Tensor:
    """What a product must reach to be one of the k largest canonical scores: the k-th score is at least `kth` minus an
    error, and a product of that score at least that minus another."""
    at = kth.double()
    lowest = at - approximation.slack(at, which)
    floor = lowest - approximation.slack(lowest, which)
    # excluded and padded columns stand at -inf; they must not become candidates where there is no bound yet
    return floor.nan_to_num(nan=-torch.inf).clamp(min=-2.0 * approximation.reach - 1.0)


def _first(row: Tensor, column: Tensor, score: Tensor, rows: int, k: int) -> tuple[Tensor, Tensor]:
    """The first k candidates of each row by (score descending, column ascending)."""
    order = torch.argsort(column, stable=True)
    order = order[torch.argsort(score[order], descending=True, stable=True)]
    order = order[torch.argsort(row[order], stable=True)]
    row = row[order]
    count = torch.bincount(row, minlength=rows)
    place = torch.arange(row.shape[0], device=row.device) - (count.cumsum(0) - count)[row]
    taken = place < k
    values = score.new_full((rows, k), -torch.inf)
    indices = torch.full((rows, k), -1, dtype=torch.int64, device=row.device)
    values[row[taken], place[taken]] = score[order][taken]
    indices[row[taken], place[taken]] = column[order][taken]
    return values, indices
