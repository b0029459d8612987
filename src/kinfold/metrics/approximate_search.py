"""Approximate neighbours by the graph index of an installed faiss, for galleries too large to compare with in full."""

import torch
from torch import Tensor

from kinfold.metrics._ranking.query_gallery import QueryGallery

_LINKS = 32  # neighbours of each node of the graph
_SEARCH = 128  # nodes held while searching


def faiss_neighbors(comparison: QueryGallery, k: int, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values and indices (Q, k) of rows that are near, most of them the nearest; -1 where fewer were found."""
    try:
        import faiss
    except ImportError as missing:
        raise ImportError(
            'approximate search needs faiss: pip install "kinfold[faiss]", or use the exact search (backend="exact")'
        ) from missing
    euclidean = comparison.distance == "euclidean"
    metric = faiss.METRIC_L2 if euclidean else faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexHNSWFlat(comparison.gallery.shape[1], _LINKS, metric)
    index.hnsw.efSearch = max(_SEARCH, 2 * k)
    index.add(comparison.gallery.float().cpu().numpy())
    _, found = index.search(comparison.queries.float().cpu().numpy(), min(comparison.size, k + 1))
    indices = torch.from_numpy(found).to(comparison.gallery.device)
    row, place = (indices >= 0).nonzero(as_tuple=True)
    scores = torch.full(indices.shape, -torch.inf, dtype=torch.float64, device=indices.device)
    scores[row, place] = comparison.exact(row, indices[row, place])
    if exclude is not None:
        scores[indices == exclude[:, None]] = -torch.inf
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    indices = indices.gather(1, order).masked_fill(scores == -torch.inf, -1)[:, :k]
    return comparison.values(scores[:, :k]), indices
