"""Ranks by sorting whole rows of the gallery: for sets of few items, classes of many, and collapsed embeddings."""

import torch
from torch import Tensor

from kinfold.metrics._ranking.approximation import Approximation


def sorted_ranks(approximation: Approximation, which: Tensor, items: Tensor, exclude: Tensor | None) -> Tensor:
    """Exact ranks (B, R), from one, of gallery rows `items` (B, R) for queries `which` (B,)."""
    order = sorted_columns(approximation, which, exclude)
    place = torch.empty_like(order)
    place.scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    return place.gather(1, items) + 1


def sorted_columns(approximation: Approximation, which: Tensor, exclude: Tensor | None) -> Tensor:
    """All columns (B, N), closest first by canonical score, ties by index; the excluded one last."""
    size = approximation.comparison.size
    products = approximation.queries[which] @ approximation.gallery[:size].T
    if exclude is not None:
        products.scatter_(1, exclude[:, None], -torch.inf)
    found, order = products.sort(dim=1, descending=True, stable=True)
    close = (found[:, :-1] - found[:, 1:]) <= 2.0 * approximation.slack(found[:, :-1], which)
    close &= found[:, 1:] > -torch.inf
    del found, products
    (row,) = close.any(dim=1).nonzero(as_tuple=True)
    if row.shape[0]:
        order[row] = _decided(approximation, which[row], order[row], close[row])
    return order


def _decided(approximation: Approximation, which: Tensor, order: Tensor, close: Tensor) -> Tensor:
    """`order` with every run of columns that products cannot tell apart sorted by canonical score."""
    alone = close.new_zeros(close.shape[0], 1)
    run = torch.cat([alone, ~close], dim=1).cumsum(dim=1)
    # equal rows have equal scores: only runs of different rows have to be looked at
    same = approximation.comparison.distinct[order]
    mixed = close.new_zeros(close.shape[0], order.shape[1])
    row, place = (close & (same[:, :-1] != same[:, 1:])).nonzero(as_tuple=True)
    mixed[row, run[row, place]] = True
    row, place = mixed.gather(1, run).nonzero(as_tuple=True)
    score = torch.zeros(order.shape, dtype=torch.float64, device=order.device)
    score[row, place] = approximation.comparison.exact(which[row], order[row, place])
    # least significant key first: index, then score, then run; each sort keeps the order of the one before
    by_index = order.argsort(dim=1)
    by_score = score.gather(1, by_index).argsort(dim=1, descending=True, stable=True)
    position = by_index.gather(1, by_score)
    by_run = run.gather(1, position).argsort(dim=1, stable=True)
    return order.gather(1, position.gather(1, by_run))
