"""Metrics of any relevance: a matrix of Q x N numbers in the place of labels, such as degrees, trees or label sets."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.fast_products import use_full_precision
from kinfold.metrics._ranking.query_gallery import Distance, build_query_gallery
from kinfold.metrics.inputs import Embeddings, to_rows
from kinfold.metrics.lookup import find_metric
from kinfold.metrics.nearest_neighbors import search_exact
from kinfold.registry import suggest

# entries of a block of rankings: positions, scores, relevances and their sums, in float64 about 40 bytes each
_BLOCK_ENTRIES = 2**22

RelevanceSource = Tensor | Callable[[Tensor], Tensor]


def evaluate_graded(
    embeddings: Embeddings,
    relevance: RelevanceSource,
    gallery: Embeddings | None = None,
    metrics: Sequence[str] = ("ndcg@10", "hap", "map"),
    distance: Distance = "cosine",
    *,
    exclude: Tensor | None = None,
    memory_limit: int = tuning.MEMORY_LIMIT,
    device: torch.device | str | None = None,
) -> dict[str, float]:
    """Compute metrics of exact rankings for a relevance of your own.

    The relevance of an item to a query is a number that is not negative: 0 or 1 for any boolean relation (several
    labels per item), degrees for trees of labels or ratings. Items of relevance zero are not relevant. Queries without
    a relevant item are left out. The whole gallery is ranked: time O(Q N log N), memory by blocks of queries.

    - `ndcg@k`: sum of (2^r - 1) / log2(1 + rank) over the first k, divided by its largest value (Jarvelin and
      Kekalainen, 2002; gains as in Burges et al., 2005).
    - `hap`: hierarchical average precision (Ramzi et al., ECCV 2022).
    - `map`, `map@k`, `recall@k`, `precision@k`, `r-precision`, `mrr`: as in `evaluate`, relevant or not.

    Args:
        embeddings: (Q, d).
        relevance: (Q, N), boolean or numbers, or a function that returns the rows (b, N) of queries (b,).
        gallery: (N, d). Without it every item is a query against all others, and leaves itself out by index.
        metrics: Names of the list above, with a number for k.
        distance: "cosine", "dot", "euclidean" or "hyperbolic", see `kinfold.pairs.distances`.
        exclude: For queries that are part of a larger gallery: the gallery index that each query leaves out, (Q,), -1
            for none.
        memory_limit: Bytes of the block of products that is held at a time. It does not change the result.
        device: Where to compute; None computes where the rows are.

    Returns:
        The value of each metric by name, NaN if no query has a relevant item.

    Raises:
        ValueError: An argument is not valid, or a row is not finite.

    Examples:
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.7]])
        >>> relevance = torch.tensor([[0, 2, 0, 1], [2, 0, 0, 1], [0, 0, 0, 3], [1, 1, 3, 0]])
        >>> {name: round(value, 4) for name, value in evaluate_graded(x, relevance).items()}
        {'ndcg@10': 0.9078, 'hap': 0.9333, 'map': 1.0}
    """
    selected = {name: _find(name) for name in metrics}
    x, y = to_rows(embeddings, device), None if gallery is None else to_rows(gallery, device)
    query_gallery = build_query_gallery(x, y, distance)
    queries, size = query_gallery.queries.shape[0], query_gallery.size
    home = query_gallery.gallery.device
    if exclude is None:
        exclude = torch.arange(queries, device=home) if gallery is None else None
    else:
        exclude = torch.as_tensor(exclude).to(home, torch.int64)
        if exclude.shape != (queries,):
            raise ValueError(f"exclude must hold one gallery index for each of {queries} queries")
    parts: dict[str, list[Tensor]] = {name: [] for name in selected}
    rows = max(1, _BLOCK_ENTRIES // max(1, size))
    for start in range(0, queries, rows):
        block = torch.arange(start, min(start + rows, queries), device=home)
        degrees = _read_relevance(relevance, block, queries, size).to(home, torch.float64)
        left_out = None if exclude is None else exclude[block]
        if left_out is not None:
            has_one = left_out >= 0
            degrees[has_one.nonzero().squeeze(1), left_out[has_one]] = 0.0
        part = replace(query_gallery, queries=query_gallery.queries[block], is_same_set=False)
        with use_full_precision(home):
            order = search_exact(part, size, left_out, memory_limit)[1]
        ranked = degrees.gather(1, order)
        ranked = ranked[ranked.sum(dim=1) > 0]
        for name, metric in selected.items():
            parts[name].append(metric(ranked))
    means = {name: torch.cat(values) for name, values in parts.items()}
    return {name: float(values.mean()) if len(values) else float("nan") for name, values in means.items()}


def hierarchical_average_precision(ranked: Tensor) -> Tensor:
    """H-AP of each query, (Q,): (1 / sum r) sum_k h_k / k, h_k = sum over j <= k of min(r_k, r_j).

    Args:
        ranked: Relevances of all items in the order of their ranks, (Q, N).

    Examples:
        >>> hierarchical_average_precision(torch.tensor([[1.0, 0.5, 0.0], [0.5, 0.0, 1.0]]))
        tensor([1.0000, 0.6667])
    """
    total, values = ranked.sum(dim=1), torch.zeros_like(ranked[:, 0])
    levels = torch.unique(ranked[ranked > 0])  # the minimum of r_k and r_j, summed over steps between levels
    ranks = torch.arange(1, ranked.shape[1] + 1, device=ranked.device)
    for low, high in zip([levels.new_zeros(()), *levels], levels, strict=False):
        is_reached = (ranked >= high).to(ranked.dtype)
        values = values + ((high - low) * is_reached * is_reached.cumsum(dim=1) / ranks).sum(dim=1)
    return values / total


def ndcg(ranked: Tensor, k: int) -> Tensor:
    """Normalized discounted cumulative gain of each query, (Q,); argument as in `hierarchical_average_precision`.

    Examples:
        >>> ndcg(torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), 3)
        tensor([1.0000, 0.5000])
    """
    gains = 2.0**ranked - 1.0
    discounts = torch.log2(torch.arange(2, min(k, ranked.shape[1]) + 2, device=ranked.device, dtype=ranked.dtype))
    best = gains.sort(dim=1, descending=True).values
    value, largest = ((part[:, :k] / discounts).sum(dim=1) for part in (gains, best))
    return value / largest


def _average_precision(ranked: Tensor, k: int | None) -> Tensor:
    is_relevant = (ranked > 0).to(ranked.dtype)
    ranks = torch.arange(1, ranked.shape[1] + 1, device=ranked.device)
    precision = is_relevant * is_relevant.cumsum(dim=1) / ranks
    number = is_relevant.sum(dim=1)
    return precision.sum(dim=1) / number if k is None else precision[:, :k].sum(dim=1) / number.clamp(max=k)


def _r_precision(ranked: Tensor) -> Tensor:
    is_relevant = ranked > 0
    number = is_relevant.sum(dim=1, keepdim=True)
    ranks = torch.arange(1, ranked.shape[1] + 1, device=ranked.device)
    return (is_relevant & (ranks <= number)).sum(dim=1) / number.squeeze(1).to(ranked.dtype)


_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "hap": hierarchical_average_precision,
    "map": lambda ranked: _average_precision(ranked, None),
    "r-precision": _r_precision,
    "mrr": lambda ranked: 1.0 / ((ranked > 0).int().argmax(dim=1) + 1).to(ranked.dtype),
}
_AT_K: dict[str, Callable[[Tensor, int], Tensor]] = {
    "ndcg": ndcg,
    "map": _average_precision,
    "recall": lambda ranked, k: (ranked[:, :k] > 0).any(dim=1).to(ranked.dtype),
    "precision": lambda ranked, k: (ranked[:, :k] > 0).sum(dim=1).to(ranked.dtype) / k,
}


def is_graded_metric(name: str) -> bool:
    """Whether a metric of a run compares related items: `hap` and `ndcg@k`. All others compare classes.

    Examples:
        >>> [is_graded_metric(name) for name in ("ndcg@10", "hap", "map@r")]
        [True, True, False]
    """
    return name == "hap" or name.startswith("ndcg@")


def check_metric(name: str, *, has_relation: bool = True) -> None:
    """Raise ValueError for a metric that a run cannot compute.

    Args:
        name: Its name.
        has_relation: Whether the data says how much two items are related.
    """
    if not is_graded_metric(name):
        find_metric(name)
        return
    _find(name)
    if not has_relation:
        raise ValueError(
            f"{name} compares related items: name a column of levels or tags, as in "
            "--set data.options.columns.levels=taxonomy"
        )


def _find(name: str) -> Callable[[Tensor], Tensor]:
    """Return the metric of a name."""
    match = re.fullmatch(r"(\w+)@([1-9][0-9]*)", name)
    if match and match[1] in _AT_K:
        function, k = _AT_K[match[1]], int(match[2])
        return lambda ranked: function(ranked, k)
    if name not in _PLAIN:
        known = [*_PLAIN, *(f"{prefix}@10" for prefix in _AT_K)]
        raise ValueError(f"unknown metric {name!r}{suggest(name, known)}; there are {', '.join(known)}")
    return _PLAIN[name]


def _read_relevance(relevance: RelevanceSource, block: Tensor, queries: int, size: int) -> Tensor:
    """Return the rows (b, N) of a block of queries, checked, as a copy in float64."""
    if isinstance(relevance, Tensor):
        if tuple(relevance.shape) != (queries, size):
            raise ValueError(f"relevance must have the shape {(queries, size)}, got {tuple(relevance.shape)}")
        rows = relevance[block.to(relevance.device)]
    else:
        rows = relevance(block)
        if tuple(rows.shape) != (len(block), size):
            raise ValueError(f"relevance must return the shape {(len(block), size)}, got {tuple(rows.shape)}")
    rows = rows.to(torch.float64, copy=True)
    if rows.numel() and not bool((rows >= 0).all()):
        raise ValueError("relevance must not be negative or NaN: 0 is not relevant")
    return rows
