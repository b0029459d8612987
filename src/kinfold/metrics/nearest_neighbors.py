"""Exact nearest neighbors in row chunks within a memory limit."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.fast_products import use_full_precision
from kinfold.metrics._ranking.nearest import NeighborSearch
from kinfold.metrics._ranking.query_gallery import Distance, QueryGallery, build_query_gallery
from kinfold.metrics.faiss_search import search_faiss
from kinfold.metrics.inputs import Embeddings, to_rows


def neighbors(
    queries: Embeddings,
    gallery: Embeddings | None = None,
    k: int = 100,
    distance: Distance = "cosine",
    *,
    exclude: Tensor | None = None,
    memory_limit: int = tuning.MEMORY_LIMIT,
    device: torch.device | str | None = None,
    backend: Literal["exact", "faiss"] = "exact",
) -> tuple[Tensor, Tensor]:
    """Find the k nearest gallery rows of every query, closest first.

    Args:
        queries: (Q, d).
        gallery: (N, d). Without it the queries are the gallery, and each leaves itself out, by index.
        k: The number of neighbors. If there are fewer rows to find, the result has fewer columns.
        distance: "cosine", "dot", "euclidean" or "hyperbolic", see `kinfold.pairs.distances`.
        exclude: A gallery index that each query leaves out, (Q,), -1 for none.
        memory_limit: Bytes of the block of products that is held at a time. It does not change the result.
        device: Where to compute; None computes where the rows are.
        backend: "exact", or "faiss" for an approximate search with a graph index of an installed faiss, for galleries
            of many millions.

    Returns:
        Values (Q, k) float64 and gallery indices (Q, k). Values are similarities for "cosine" and "dot", distances for
        "euclidean" and "hyperbolic". Equal values are in the order of their indices.

    Raises:
        ValueError: An argument is not valid, or a row is not finite.
        ImportError: The backend is "faiss" and faiss is not installed.

    Examples:
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
    x, y = to_rows(queries, device), None if gallery is None else to_rows(gallery, device)
    query_gallery = build_query_gallery(x, y, distance)
    if exclude is None and query_gallery.is_same_set:
        exclude = torch.arange(x.shape[0], device=query_gallery.gallery.device)
    if exclude is not None:
        exclude = torch.as_tensor(np.asarray(exclude) if not isinstance(exclude, Tensor) else exclude)
        exclude = exclude.to(query_gallery.gallery.device, torch.int64)
        if exclude.shape != (x.shape[0],):
            raise ValueError(f"exclude must hold one gallery index for each of {x.shape[0]} queries")
    if backend == "faiss":
        if memory_limit != tuning.MEMORY_LIMIT:
            raise ValueError("memory_limit is for the exact search; leave it out with backend='faiss'")
        return search_faiss(query_gallery, k, exclude)
    if backend != "exact":
        raise ValueError(f"backend must be 'exact' or 'faiss', got {backend!r}")
    with use_full_precision(query_gallery.gallery.device):
        return search_exact(query_gallery, k, exclude, memory_limit)


def search_exact(
    query_gallery: QueryGallery, k: int, exclude: Tensor | None, memory_limit: int, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Return values and indices (Q, k) of the nearest gallery rows; `dtype` is the type of the first products."""
    total, device = query_gallery.queries.shape[0], query_gallery.gallery.device
    available = query_gallery.size if exclude is None else query_gallery.size - int(bool((exclude >= 0).any()))
    k = min(k, available)
    if total * k == 0:
        empty = torch.empty(total, k, dtype=torch.float64, device=device)
        return empty, empty.to(torch.int64)
    search = NeighborSearch(query_gallery, memory_limit, dtype)
    scores, columns = search.search(torch.arange(total, device=device), exclude, k)
    return query_gallery.convert_scores(scores), columns
