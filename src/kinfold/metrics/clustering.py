"""k-means with many clusters: as many as the evaluated set has classes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.distributed import World

_ROWS_AT_ONCE = 1 << 16
_SCORES_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Clustering:
    """clusters: (N,) int64; centres: (K, d); steps taken, and whether they came to rest."""

    clusters: Tensor
    centres: Tensor
    steps: int
    settled: bool


def k_means(
    rows: Tensor,
    clusters: int,
    *,
    steps: int = 20,
    seed: int = 0,
    world: World | None = None,
    progress: Callable[[float], None] | None = None,
) -> Clustering:
    """Lloyd's algorithm, Euclidean, started from `clusters` rows drawn without replacement.

    20 steps and one start are what the field reports. A cluster that loses all its rows starts again at the row that is
    farthest from its centre. Only centres that moved, and rows whose own centre moved, are compared again.
    """
    if not 1 <= clusters <= rows.shape[0]:
        raise ValueError(f"{clusters} clusters of {rows.shape[0]} rows: choose between 1 and the number of rows")
    world = world or World()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(rows.shape[0], generator=generator)[:clusters].to(rows.device)
    centres = rows[drawn].clone()
    mine = world.take_share(torch.arange(rows.shape[0], device=rows.device))
    label = torch.full((rows.shape[0],), -1, dtype=torch.int64, device=rows.device)
    score = torch.full((rows.shape[0],), -torch.inf, dtype=rows.dtype, device=rows.device)
    moved = torch.ones(clusters, dtype=torch.bool, device=rows.device)
    lengths = rows.square().sum(dim=1)
    taken, settled = 0, False
    while taken < steps and not settled:
        if progress is not None:
            progress(taken / steps)
        taken += 1
        before = label.clone()
        _assign(rows, centres, moved, mine, label, score)
        world.merge_shares(label, mine)
        world.merge_shares(score, mine)
        settled = bool((label == before).all())
        fresh = _means(rows, label, centres, lengths - 2.0 * score)
        moved = (fresh != centres).any(dim=1)
        centres = fresh
    return Clustering(label, centres, taken, settled)


def _assign(rows: Tensor, centres: Tensor, moved: Tensor, mine: Tensor, label: Tensor, score: Tensor) -> None:
    """Give rows `mine` their nearest centre, in place; the score is x.c - |c|^2 / 2."""
    stale = moved[label[mine].clamp(min=0)] | (label[mine] < 0)
    _nearest(rows, centres, torch.arange(centres.shape[0], device=rows.device), mine[stale], label, score, True)
    (changed,) = moved.nonzero(as_tuple=True)
    if changed.shape[0]:
        _nearest(rows, centres[changed], changed, mine[~stale], label, score, False)


def _nearest(
    rows: Tensor, centres: Tensor, names: Tensor, which: Tensor, label: Tensor, score: Tensor, replace: bool
) -> None:
    half = centres.square().sum(dim=1).mul_(-0.5)
    for part in torch.split(which, max(16, _SCORES_AT_ONCE // centres.shape[0])):
        best, place = torch.addmm(half, rows[part], centres.T).max(dim=1)
        name = names[place]
        # between equals the smaller name
        closer = (best > score[part]) | ((best == score[part]) & (name < label[part]))
        better = torch.ones_like(closer) if replace else closer
        score[part] = torch.where(better, best, score[part])
        label[part] = torch.where(better, name, label[part])


def _means(rows: Tensor, label: Tensor, centres: Tensor, distance: Tensor) -> Tensor:
    sums = torch.zeros(centres.shape, dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[0], _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        sums.index_add_(0, label[part], rows[part].double())
    count = torch.bincount(label, minlength=centres.shape[0])
    fresh = (sums / count.clamp(min=1)[:, None]).to(rows.dtype)
    (empty,) = (count == 0).nonzero(as_tuple=True)
    if empty.shape[0]:
        fresh[empty] = rows[distance.topk(empty.shape[0]).indices]
    return fresh
