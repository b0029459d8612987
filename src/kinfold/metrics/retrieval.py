"""Retrieval metrics of a query, from the ranks of its relevant items.

With ranks r_1 < r_2 < ... < r_n of the n relevant items, the precision where the j-th of them appears is j / r_j, and
everything below follows. Queries without a relevant item are left out of the mean, except in the metrics of the study
of Roth et al. (2020), where they count zero.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.metrics._ranking.ranker import Depth


@dataclass(frozen=True)
class Retrieval:
    """A metric of ranks.

    per_query(ranks, relevant, class_size) -> (B,) float64, with ranks (B, R) ascending, the number of relevant items
    (B,) and the size of the class (B,), which includes the query where it is part of the gallery.
    depth: how deep it looks. counts_singletons: a query without a relevant item counts zero.
    """

    depth: Depth
    per_query: Callable[[Tensor, Tensor, Tensor], Tensor]
    counts_singletons: bool = False


def recall(k: int) -> Retrieval:
    """Whether at least one of the k nearest is relevant (the field's recall@k; a hit rate, not a set recall)."""
    return Retrieval(Depth(first=k), lambda ranks, relevant, size: (ranks[:, 0] <= k).double())


def precision(k: int) -> Retrieval:
    """The relevant among the k nearest, divided by k, also where there are fewer than k relevant items."""
    return Retrieval(Depth(k), lambda ranks, relevant, size: (ranks <= k).sum(dim=1).double() / k)


def r_precision() -> Retrieval:
    """Precision at n, the number of relevant items."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return (ranks <= relevant[:, None]).sum(dim=1).double() / relevant

    return Retrieval(Depth(beside_relevant=0), value)


def map_at_r() -> Retrieval:
    """(1/n) sum of j / r_j over j with r_j <= n, r_j the rank of the j-th of n relevant (Musgrave et al.)."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, relevant).sum(dim=1) / relevant

    return Retrieval(Depth(beside_relevant=0), value)


def mean_average_precision() -> Retrieval:
    """(1/n) sum over all j of j / r_j, r_j the rank of the j-th of n relevant items: the whole ranking."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, torch.full_like(relevant, torch.iinfo(torch.int32).max)).sum(dim=1) / relevant

    return Retrieval(Depth(full=True), value)


def map_at_c() -> Retrieval:
    """(1/c) sum over j with r_j <= c of j / r_j, c the class size with the query: as computed by Roth et al. (2020).

    A perfect ranking scores (c - 1) / c.
    """

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, size).sum(dim=1) / size

    return Retrieval(Depth(beside_relevant=1), value, counts_singletons=True)


def map_at_1000() -> Retrieval:
    """(1/c) sum over j with r_j <= 1000 of j / r_j: as computed by Roth et al. (2020)."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, torch.full_like(size, 1000)).sum(dim=1) / size

    return Retrieval(Depth(1000), value, counts_singletons=True)


def map_at_c_printed() -> Retrieval:
    """Equation 29 of Roth et al. (2020) as printed: precision at c, which is not what their tables hold."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return (ranks <= size[:, None]).sum(dim=1).double() / size

    return Retrieval(Depth(beside_relevant=1), value, counts_singletons=True)


def map_at_1000_printed() -> Retrieval:
    """Equation 30 of Roth et al. (2020) as printed: precision at 1000, which is not what their tables hold."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return (ranks <= 1000).sum(dim=1).double() / 1000

    return Retrieval(Depth(1000), value, counts_singletons=True)


def mean_reciprocal_rank() -> Retrieval:
    """1 / r_1, r_1 the rank of the first relevant item, however deep it is."""
    return Retrieval(
        Depth(first=torch.iinfo(torch.int64).max), lambda ranks, relevant, size: 1.0 / ranks[:, 0].double()
    )


def _precisions(ranks: Tensor, depth: Tensor) -> Tensor:
    """j / r_j where r_j <= depth (B,), else zero."""
    j = torch.arange(1, ranks.shape[1] + 1, device=ranks.device)
    return torch.where(ranks <= depth[:, None], j / ranks.double(), 0.0)
