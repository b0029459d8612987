"""k-means with many clusters, as many as the evaluated set has classes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.distributed import World

_ROWS_PER_SUM = 1 << 16
_SCORES_PER_STEP = 1 << 24


@dataclass(frozen=True)
class Clustering:
    """The result of k-means.

    Args:
        clusters: The cluster of each row, (N,) int64.
        centers: The mean of each cluster, (K, d).
        steps: The number of steps.
        converged: Whether the last step changed no cluster.
    """

    clusters: Tensor
    centers: Tensor
    steps: int
    converged: bool


def k_means(
    rows: Tensor,
    num_clusters: int,
    *,
    max_steps: int = 20,
    seed: int = 0,
    world: World | None = None,
    progress: Callable[[float], None] | None = None,
) -> Clustering:
    """Cluster rows by Lloyd's algorithm with the Euclidean distance.

    It starts from rows that are drawn without replacement. 20 steps and one start are usual in this field. A cluster
    that loses all its rows starts again at the row that is farthest from its center. Only centers that moved, and rows
    whose center moved, are compared again.

    Args:
        rows: (N, d).
        num_clusters: The number of clusters, from 1 to N.
        max_steps: The largest number of steps; it stops earlier if no row changes its cluster.
        seed: The seed of the draw of the first centers.
        world: The processes that share the work; None is this process alone.
        progress: Called with the share of steps that is finished.

    Returns:
        Clusters and centers.

    Raises:
        ValueError: The number of clusters is not between 1 and N.

    Examples:
        >>> k_means(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), 2).clusters.unique_consecutive().shape
        torch.Size([2])
    """
    if not 1 <= num_clusters <= rows.shape[0]:
        raise ValueError(f"{num_clusters} clusters of {rows.shape[0]} rows: choose between 1 and the number of rows")
    world = world or World()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(rows.shape[0], generator=generator)[:num_clusters].to(rows.device)
    centers = rows[drawn].clone()
    share = world.take_share(torch.arange(rows.shape[0], device=rows.device))
    label = torch.full((rows.shape[0],), -1, dtype=torch.int64, device=rows.device)
    score = torch.full((rows.shape[0],), -torch.inf, dtype=rows.dtype, device=rows.device)
    moved = torch.ones(num_clusters, dtype=torch.bool, device=rows.device)
    lengths = rows.square().sum(dim=1)
    steps, converged = 0, False
    while steps < max_steps and not converged:
        if progress is not None:
            progress(steps / max_steps)
        steps += 1
        before = label.clone()
        _assign(rows, centers, moved, share, label, score)
        world.merge_shares(label, share)
        world.merge_shares(score, share)
        converged = bool((label == before).all())
        new_centers = _update_centers(rows, label, centers, lengths - 2.0 * score)
        moved = (new_centers != centers).any(dim=1)
        centers = new_centers
    return Clustering(label, centers, steps, converged)


def _assign(rows: Tensor, centers: Tensor, moved: Tensor, share: Tensor, label: Tensor, score: Tensor) -> None:
    """Assign the rows `share` to their nearest center, in place; the score is x.c - |c|^2 / 2."""
    stale = moved[label[share].clamp(min=0)] | (label[share] < 0)
    _assign_nearest(rows, centers, torch.arange(centers.shape[0], device=rows.device), share[stale], label, score, True)
    (changed,) = moved.nonzero(as_tuple=True)
    if changed.shape[0]:
        _assign_nearest(rows, centers[changed], changed, share[~stale], label, score, False)


def _assign_nearest(
    rows: Tensor, centers: Tensor, center_ids: Tensor, row_ids: Tensor, label: Tensor, score: Tensor, replace: bool
) -> None:
    half = centers.square().sum(dim=1).mul_(-0.5)
    for part in torch.split(row_ids, max(16, _SCORES_PER_STEP // centers.shape[0])):
        best, nearest = torch.addmm(half, rows[part], centers.T).max(dim=1)
        center_id = center_ids[nearest]
        # ties go to the smaller center id
        closer = (best > score[part]) | ((best == score[part]) & (center_id < label[part]))
        better = torch.ones_like(closer) if replace else closer
        score[part] = torch.where(better, best, score[part])
        label[part] = torch.where(better, center_id, label[part])


def _update_centers(rows: Tensor, label: Tensor, centers: Tensor, distance: Tensor) -> Tensor:
    sums = torch.zeros(centers.shape, dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[0], _ROWS_PER_SUM):
        part = slice(start, start + _ROWS_PER_SUM)
        sums.index_add_(0, label[part], rows[part].double())
    count = torch.bincount(label, minlength=centers.shape[0])
    new_centers = (sums / count.clamp(min=1)[:, None]).to(rows.dtype)
    (empty,) = (count == 0).nonzero(as_tuple=True)
    if empty.shape[0]:
        new_centers[empty] = rows[distance.topk(empty.shape[0]).indices]
    return new_centers
