"""Agreement of a clustering with classes: NMI, AMI and pairwise F1, from one contingency table."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Contingency:
    """Counts of the pairs (class, cluster) that occur, and their sums.

    Args:
        cells: The number of items of each pair, (P,) float64.
        cell_class: The class of each pair, (P,).
        cell_cluster: The cluster of each pair, (P,).
        classes: The size of each class, float64.
        clusters: The size of each cluster, float64.
    """

    cells: Tensor
    cell_class: Tensor
    cell_cluster: Tensor
    classes: Tensor
    clusters: Tensor

    @property
    def total(self) -> float:
        """The number of items."""
        return float(self.classes.sum())


def build_contingency(labels: Tensor, clusters: Tensor) -> Contingency:
    """Count the pairs (class, cluster) of items with int64 labels (N,) and clusters (N,)."""
    if labels.shape != clusters.shape or labels.dim() != 1:
        raise ValueError(f"labels and clusters must have one shape (N,), got {labels.shape} and {clusters.shape}")
    if labels.shape[0] == 0:
        raise ValueError("there are no items to compare")
    _, rows = torch.unique(labels, return_inverse=True)
    _, columns = torch.unique(clusters, return_inverse=True)
    width = int(columns.max()) + 1
    cells, counts = torch.unique(rows * width + columns, return_counts=True)
    by_class = torch.bincount(rows).double()
    return Contingency(counts.double(), cells // width, cells % width, by_class, torch.bincount(columns).double())


def nmi(table: Contingency) -> float:
    """Return 2 I / (H(classes) + H(clusters)), the arithmetic form; 1 if both have one group only."""
    entropies = _entropy(table.classes) + _entropy(table.clusters)
    if table.classes.shape[0] == 1 and table.clusters.shape[0] == 1:
        return 1.0
    return min(1.0, max(0.0, 2.0 * _mutual_information(table) / entropies))


def ami(table: Contingency) -> float:
    """Return (I - E[I]) / ((H(classes) + H(clusters)) / 2 - E[I]), zero for chance (Vinh et al., 2010)."""
    n, k, m = int(table.total), table.classes.shape[0], table.clusters.shape[0]
    if (k == 1 and m == 1) or (k == n and m == n):
        return 1.0
    expected = _expected_information(table)
    numerator = _mutual_information(table) - expected
    denominator = (_entropy(table.classes) + _entropy(table.clusters)) / 2 - expected
    smallest = torch.finfo(torch.float64).eps  # both may vanish together
    return numerator / (min(denominator, -smallest) if denominator < 0 else max(denominator, smallest))


def pairwise_f1(table: Contingency) -> float:
    """Return 2 TP / (pairs of one class + pairs of one cluster), TP the pairs that are both; 1 if there is no pair."""
    both, by_class, by_cluster = (float((c * (c - 1)).sum()) for c in (table.cells, table.classes, table.clusters))
    return 2.0 * both / (by_class + by_cluster) if by_class + by_cluster else 1.0


def _entropy(counts: Tensor) -> float:
    share = counts / counts.sum()
    return float(-(share * share.log()).sum())


def _mutual_information(table: Contingency) -> float:
    if table.classes.shape[0] == 1 or table.clusters.shape[0] == 1:
        return 0.0
    n = table.total
    outer = table.classes[table.cell_class].log() + table.clusters[table.cell_cluster].log()
    information = float((table.cells / n * (table.cells.log() + math.log(n) - outer)).sum())
    return max(0.0, information)


def _expected_information(table: Contingency) -> float:
    """Return E[I] over tables with these sums, whose cell counts are hypergeometric.

    Only distinct pairs of sums are computed: they are few, however many classes there are.
    """
    n = table.total
    a, a_times = torch.unique(table.classes, return_counts=True)
    b, b_times = torch.unique(table.clusters, return_counts=True)
    expected = 0.0
    for size, times in zip(a.tolist(), a_times.tolist(), strict=True):
        low, high = torch.clamp(size + b - n, min=1.0), torch.clamp(b, max=size)
        steps = (high - low + 1).clamp(min=0).long()
        index = torch.arange(b.shape[0], device=b.device).repeat_interleave(steps)
        step = torch.arange(index.shape[0], device=b.device) - (steps.cumsum(0) - steps)[index]
        cell, cluster_size = low[index] + step, b[index]
        information = cell / n * (cell.log() + math.log(n) - math.log(size) - cluster_size.log())
        log_probability = (
            _log_factorial(cluster_size)
            + _log_factorial(n - cluster_size)
            - _log_factorial(cell)
            - _log_factorial(cluster_size - cell)
            - _log_factorial(size - cell)
            - _log_factorial(n - size - cluster_size + cell)
        )
        rest = math.lgamma(size + 1) + math.lgamma(n - size + 1) - math.lgamma(n + 1)
        expected += times * float((information * (log_probability + rest).exp() * b_times[index]).sum())
    return expected


def _log_factorial(x: Tensor) -> Tensor:
    return torch.lgamma(x + 1.0)
