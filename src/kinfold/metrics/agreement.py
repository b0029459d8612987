"""How well a clustering agrees with classes: NMI, AMI and the pairwise F1, from one table of counts."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Contingency:
    """Counts of (class, cluster), only those that occur, and their sums; all float64."""

    cells: Tensor
    cell_class: Tensor
    cell_cluster: Tensor
    classes: Tensor
    clusters: Tensor

    @property
    def total(self) -> float:
        return float(self.classes.sum())


def contingency(labels: Tensor, clusters: Tensor) -> Contingency:
    """From two int64 codes (N,) of the same items."""
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
    """2 I / (H(classes) + H(clusters)), arithmetic; 1 where both have one group only."""
    entropies = _entropy(table.classes) + _entropy(table.clusters)
    if table.classes.shape[0] == 1 and table.clusters.shape[0] == 1:
        return 1.0
    return min(1.0, max(0.0, 2.0 * _mutual_information(table) / entropies))


def ami(table: Contingency) -> float:
    """(I - E[I]) / ((H(classes) + H(clusters)) / 2 - E[I]): zero for a clustering by chance (Vinh et al., 2010)."""
    n, k, m = int(table.total), table.classes.shape[0], table.clusters.shape[0]
    if (k == 1 and m == 1) or (k == n and m == n):
        return 1.0
    expected = _expected_information(table)
    top = _mutual_information(table) - expected
    bottom = (_entropy(table.classes) + _entropy(table.clusters)) / 2 - expected
    smallest = torch.finfo(torch.float64).eps  # both may vanish together
    return top / (min(bottom, -smallest) if bottom < 0 else max(bottom, smallest))


def pairwise_f1(table: Contingency) -> float:
    """2 TP / (pairs of one class + pairs of one cluster), TP the pairs that are both; 1 where there is no pair."""
    together, by_class, by_cluster = (float((c * (c - 1)).sum()) for c in (table.cells, table.classes, table.clusters))
    return 2.0 * together / (by_class + by_cluster) if by_class + by_cluster else 1.0


def _entropy(counts: Tensor) -> float:
    share = counts / counts.sum()
    return float(-(share * share.log()).sum())


def _mutual_information(table: Contingency) -> float:
    if table.classes.shape[0] == 1 or table.clusters.shape[0] == 1:
        return 0.0
    n = table.total
    outer = table.classes[table.cell_class].log() + table.clusters[table.cell_cluster].log()
    found = float((table.cells / n * (table.cells.log() + math.log(n) - outer)).sum())
    return max(0.0, found)


def _expected_information(table: Contingency) -> float:
    """E[I] over tables with these sums, cell counts hypergeometric. Only distinct pairs of sums are worked out: there
    are few, however many classes."""
    n = table.total
    a, a_times = torch.unique(table.classes, return_counts=True)
    b, b_times = torch.unique(table.clusters, return_counts=True)
    expected = 0.0
    for size, times in zip(a.tolist(), a_times.tolist(), strict=True):
        low, high = torch.clamp(size + b - n, min=1.0), torch.clamp(b, max=size)
        steps = (high - low + 1).clamp(min=0).long()
        count = steps.repeat_interleave(steps)
        which = torch.arange(b.shape[0], device=b.device).repeat_interleave(steps)
        place = torch.arange(count.shape[0], device=b.device) - (steps.cumsum(0) - steps)[which]
        cell, other = low[which] + place, b[which]
        information = cell / n * (cell.log() + math.log(n) - math.log(size) - other.log())
        chance = (
            _log_factorial(other)
            + _log_factorial(n - other)
            - _log_factorial(cell)
            - _log_factorial(other - cell)
            - _log_factorial(size - cell)
            - _log_factorial(n - size - other + cell)
        )
        rest = math.lgamma(size + 1) + math.lgamma(n - size + 1) - math.lgamma(n + 1)
        expected += times * float((information * (chance + rest).exp() * b_times[which]).sum())
    return expected


def _log_factorial(x: Tensor) -> Tensor:
    return torch.lgamma(x + 1.0)
