"""Approximate neighbors by a graph index (HNSW) of faiss, for galleries too large for an exact search."""

import torch
from torch import Tensor

from kinfold.metrics._ranking.query_gallery import QueryGallery

_LINKS_PER_NODE = 32
_MIN_SEARCH_NODES = 128  # nodes that are held while searching


def search_faiss(query_gallery: QueryGallery, k: int, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return values and indices (Q, k) of near rows, most of them the nearest; -1 where there are fewer.

    Raises:
        ImportError: faiss is not installed.
    """
    try:
        import faiss
    except ImportError as missing:
        raise ImportError(
            'approximate search needs faiss: pip install "kinfold[faiss]", or use the exact search (backend="exact")'
        ) from missing
    is_euclidean = query_gallery.distance == "euclidean"
    metric = faiss.METRIC_L2 if is_euclidean else faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexHNSWFlat(query_gallery.gallery.shape[1], _LINKS_PER_NODE, metric)
    index.hnsw.efSearch = max(_MIN_SEARCH_NODES, 2 * k)
    index.add(query_gallery.gallery.float().cpu().numpy())
    _, nearest = index.search(query_gallery.queries.float().cpu().numpy(), min(query_gallery.size, k + 1))
    indices = torch.from_numpy(nearest).to(query_gallery.gallery.device)
    row, column = (indices >= 0).nonzero(as_tuple=True)
    scores = torch.full(indices.shape, -torch.inf, dtype=torch.float64, device=indices.device)
    scores[row, column] = query_gallery.exact_scores(row, indices[row, column])
    if exclude is not None:
        scores[indices == exclude[:, None]] = -torch.inf
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    indices = indices.gather(1, order).masked_fill(scores == -torch.inf, -1)[:, :k]
    return query_gallery.convert_scores(scores[:, :k]), indices
