"""Ranks by sorting whole rows of the gallery: for small sets, large classes and collapsed embeddings."""

import torch
from torch import Tensor

from kinfold.metrics._ranking.fast_products import FastProducts


def rank_by_sorting(products: FastProducts, query_ids: Tensor, items: Tensor, exclude: Tensor | None) -> Tensor:
    """Return the exact ranks (B, R), from one, of gallery rows `items` (B, R) for queries (B,)."""
    order = sort_columns(products, query_ids, exclude)
    position = torch.empty_like(order)
    position.scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    return position.gather(1, items) + 1


def sort_columns(products: FastProducts, query_ids: Tensor, exclude: Tensor | None) -> Tensor:
    """Return all columns (B, N), highest exact score first, ties by index, the excluded column last."""
    size = products.query_gallery.size
    matrix = products.queries[query_ids] @ products.gallery[:size].T
    if exclude is not None:
        matrix.scatter_(1, exclude[:, None], -torch.inf)
    values, order = matrix.sort(dim=1, descending=True, stable=True)
    close = (values[:, :-1] - values[:, 1:]) <= 2.0 * products.bound_error(values[:, :-1], query_ids)
    close &= values[:, 1:] > -torch.inf
    del values, matrix
    (row,) = close.any(dim=1).nonzero(as_tuple=True)
    if row.shape[0]:
        order[row] = _sort_close_runs(products, query_ids[row], order[row], close[row])
    return order


def _sort_close_runs(products: FastProducts, query_ids: Tensor, order: Tensor, close: Tensor) -> Tensor:
    """Return `order` with every run of columns with close products sorted by exact scores."""
    first = close.new_zeros(close.shape[0], 1)
    run = torch.cat([first, ~close], dim=1).cumsum(dim=1)
    # equal rows have equal scores: only runs of different rows need scores
    row_ids = products.query_gallery.row_ids[order]
    is_mixed = close.new_zeros(close.shape[0], order.shape[1])
    row, position = (close & (row_ids[:, :-1] != row_ids[:, 1:])).nonzero(as_tuple=True)
    is_mixed[row, run[row, position]] = True
    row, position = is_mixed.gather(1, run).nonzero(as_tuple=True)
    score = torch.zeros(order.shape, dtype=torch.float64, device=order.device)
    score[row, position] = products.query_gallery.exact_scores(query_ids[row], order[row, position])
    # least significant key first: index, then score, then run; each stable sort keeps the order of the one before
    by_index = order.argsort(dim=1)
    by_score = score.gather(1, by_index).argsort(dim=1, descending=True, stable=True)
    sorted_position = by_index.gather(1, by_score)
    by_run = run.gather(1, sorted_position).argsort(dim=1, stable=True)
    return order.gather(1, sorted_position.gather(1, by_run))
