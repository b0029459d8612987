"""Registered retrieval metrics: values of a query from the ranks of its relevant items.

With ranks r_1 < r_2 < ... < r_n of the n relevant items, the precision at the j-th of them is j / r_j, and everything
below follows. c is the class size with the query. Queries without a relevant item are left out of the mean, except in
the metrics of the study of Roth et al. (2020), where they count zero.
"""

import torch
from torch import Tensor

from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics.metric_kinds import RetrievalMetric


def recall(k: int) -> RetrievalMetric:
    """1 if at least one of the k nearest is relevant (r_1 <= k): the recall@k of this field, a hit rate.

    Args:
        k: The number of nearest items that count.
    """
    return RetrievalMetric(RankDepth(first=k), lambda ranks, relevant, size: (ranks[:, 0] <= k).double())


def precision(k: int) -> RetrievalMetric:
    """Share of relevant items among the k nearest: (number of r_j <= k) / k, also if there are fewer than k relevant.

    Args:
        k: The number of nearest items that count.
    """
    return RetrievalMetric(RankDepth(k), lambda ranks, relevant, size: (ranks <= k).sum(dim=1).double() / k)


def r_precision() -> RetrievalMetric:
    """Precision at n, the number of relevant items: (number of r_j <= n) / n."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return (ranks <= relevant[:, None]).sum(dim=1).double() / relevant

    return RetrievalMetric(RankDepth(beyond_relevant=0), value)


def map_at_r() -> RetrievalMetric:
    """(1/n) sum of j / r_j over j with r_j <= n, r_j the rank of the j-th of n relevant (Musgrave et al., 2020)."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, relevant).sum(dim=1) / relevant

    return RetrievalMetric(RankDepth(beyond_relevant=0), value)


def map_at_k(k: int) -> RetrievalMetric:
    """(1 / min(n, k)) sum of j / r_j over j with r_j <= k, r_j the rank of the j-th of n relevant items.

    The average precision of the first k results, as in text retrieval. "map@1000" is another metric, see there.

    Args:
        k: The number of nearest items that count.
    """

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, torch.full_like(relevant, k)).sum(dim=1) / relevant.clamp(max=k)

    return RetrievalMetric(RankDepth(k), value)


def mean_average_precision() -> RetrievalMetric:
    """(1/n) sum over all j of j / r_j, r_j the rank of the j-th of n relevant items: the whole ranking."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, torch.full_like(relevant, torch.iinfo(torch.int32).max)).sum(dim=1) / relevant

    return RetrievalMetric(RankDepth(full=True), value)


def map_at_c() -> RetrievalMetric:
    """(1/c) sum over j with r_j <= c of j / r_j, c the class size with the query: as computed by Roth et al. (2020).

    A perfect ranking scores (c - 1) / c.
    """

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, size).sum(dim=1) / size

    return RetrievalMetric(RankDepth(beyond_relevant=1), value, counts_singletons=True)


def map_at_1000() -> RetrievalMetric:
    """(1/c) sum over j with r_j <= 1000 of j / r_j: as computed by Roth et al. (2020)."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return _precisions(ranks, torch.full_like(size, 1000)).sum(dim=1) / size

    return RetrievalMetric(RankDepth(1000), value, counts_singletons=True)


def map_at_c_printed() -> RetrievalMetric:
    """Equation 29 of Roth et al. (2020) as printed: precision at c, which their tables do not show."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return (ranks <= size[:, None]).sum(dim=1).double() / size

    return RetrievalMetric(RankDepth(beyond_relevant=1), value, counts_singletons=True)


def map_at_1000_printed() -> RetrievalMetric:
    """Equation 30 of Roth et al. (2020) as printed: precision at 1000, which their tables do not show."""

    def value(ranks: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
        return (ranks <= 1000).sum(dim=1).double() / 1000

    return RetrievalMetric(RankDepth(1000), value, counts_singletons=True)


def mean_reciprocal_rank() -> RetrievalMetric:
    """1 / r_1, r_1 the rank of the first relevant item, however deep it is (Voorhees, 1999)."""
    return RetrievalMetric(
        RankDepth(first=torch.iinfo(torch.int64).max), lambda ranks, relevant, size: 1.0 / ranks[:, 0].double()
    )


def _precisions(ranks: Tensor, depth: Tensor) -> Tensor:
    """Return j / r_j where r_j <= depth (B,), else zero."""
    j = torch.arange(1, ranks.shape[1] + 1, device=ranks.device)
    return torch.where(ranks <= depth[:, None], j / ranks.double(), 0.0)
