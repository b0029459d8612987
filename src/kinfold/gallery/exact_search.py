"""Exact nearest neighbors among unit vectors in several chunks, without copying or checking them again.

A float32 product proposes candidates, and the float64 product of the same vectors orders them, as in
`kinfold.metrics.neighbors`. The two differ by at most (d + 8) 2^-24 for unit vectors of d numbers, whatever the order
of the sum. So a row can only be among the k nearest if its float32 product reaches the k-th largest one minus twice
that bound.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kinfold.metrics._ranking.fast_products import use_full_precision
from kinfold.metrics._ranking.nearest import take_first

_QUERIES_PER_BLOCK = 64
_ROWS_PER_BLOCK = 1 << 15  # 64 x 32,768 products are 8 MB
_GROUP = 64  # columns whose maximum is compared before single columns are
_MAX_CANDIDATES = 1 << 21  # of a block of queries, about 100 MB; above, the block is divided


def search_chunks(queries: Tensor, chunks: Sequence[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """Find the k rows with the highest cosine.

    Args:
        queries: Unit vectors, float32 (Q, d).
        chunks: Unit vectors, float32 (N_i, d) each. Rows are counted over all chunks.
        k: The number of neighbors; fewer where there are fewer rows.

    Returns:
        Cosines (Q, k) float64, the highest first, and rows (Q, k). Equal cosines are in the order of their rows.

    Examples:
        >>> chunks = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.6, 0.8]])]
        >>> search_chunks(torch.tensor([[1.0, 0.0]]), chunks, k=2)
        (tensor([[1.0000, 0.6000]], dtype=torch.float64), tensor([[0, 2]]))
    """
    k = min(k, sum(chunk.shape[0] for chunk in chunks))
    scores = torch.empty(queries.shape[0], k, dtype=torch.float64)
    rows = torch.empty(queries.shape[0], k, dtype=torch.int64)
    if queries.shape[0] * k == 0:
        return scores, rows
    blocks = [*torch.split(torch.arange(queries.shape[0]), _QUERIES_PER_BLOCK)]
    with use_full_precision(queries.device):
        while blocks:
            block = blocks.pop()
            nearest = _search_block(queries[block], chunks, k, _MAX_CANDIDATES if len(block) > 1 else None)
            if nearest is None:
                blocks += torch.split(block, (len(block) + 1) // 2)
            else:
                scores[block], rows[block] = nearest
    return scores, rows


def _search_block(
    queries: Tensor, chunks: Sequence[Tensor], k: int, max_candidates: int | None
) -> tuple[Tensor, Tensor] | None:
    """Return cosines and rows (B, k) of a few queries; None if there are more than `max_candidates`."""
    error = 1.01 * (queries.shape[1] + 8) * 2.0**-24
    best = queries.new_full((queries.shape[0], k), -torch.inf)  # k of the largest group maxima so far
    candidates: list[tuple[Tensor, Tensor, Tensor]] = []
    start = num_candidates = 0
    for chunk in chunks:
        for rows in torch.split(chunk, _ROWS_PER_BLOCK):
            # a product of a matrix and a vector is several times as fast as one of two matrices for one query
            products = torch.mv(rows, queries[0])[None] if len(queries) == 1 else queries @ rows.T
            maxima = _group_maxima(products)
            best = torch.cat([best, maxima], dim=1).topk(k, dim=1).values
            floor = best[:, -1] - 2 * error
            query, column = _find_reaching(products, maxima, floor)
            candidates.append((query, start + column, products[query, column]))
            start += rows.shape[0]
            num_candidates += len(query)
            if max_candidates is not None and num_candidates > max_candidates:
                return None
    query, row, product = (torch.cat(parts) for parts in zip(*candidates, strict=True))
    keep = product >= floor[query]
    query, row = query[keep], row[keep]
    return take_first(query, row, score_rows(queries, chunks, query, row), queries.shape[0], k)


def _group_maxima(products: Tensor) -> Tensor:
    """Return the largest product of each group of columns (B, G); the last columns may be a smaller group."""
    whole = products.shape[1] // _GROUP * _GROUP
    maxima = products[:, :whole].reshape(products.shape[0], -1, _GROUP).amax(dim=2)
    if whole == products.shape[1]:
        return maxima
    return torch.cat([maxima, products[:, whole:].amax(dim=1, keepdim=True)], dim=1)


def _find_reaching(products: Tensor, maxima: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions (query, column) of all products that reach `floor` (B,)."""
    query, group = (maxima >= floor[:, None]).nonzero(as_tuple=True)
    offsets = torch.arange(_GROUP, device=products.device)
    column = group[:, None] * _GROUP + offsets  # (T, group)
    exists = column < products.shape[1]
    values = products[query[:, None], column.clamp(max=products.shape[1] - 1)]
    entry, offset = (exists & (values >= floor[query, None])).nonzero(as_tuple=True)
    return query[entry], column[entry, offset]


def score_rows(queries: Tensor, chunks: Sequence[Tensor], query: Tensor, row: Tensor) -> Tensor:
    """Return the float64 products of queries and rows.

    Args:
        queries: (Q, d).
        chunks: (N_i, d) each.
        query, row: A query and a row, counted over all chunks, for each product, (T,).

    Returns:
        (T,) float64.
    """
    scores = torch.empty(row.shape[0], dtype=torch.float64)
    start = 0
    for chunk in chunks:
        inside = ((row >= start) & (row < start + chunk.shape[0])).nonzero().squeeze(1)
        for part in torch.split(inside, 1 << 14):
            left, right = queries[query[part]].double(), chunk[row[part] - start].double()
            scores[part] = (left * right).sum(dim=-1)
        start += chunk.shape[0]
    return scores
