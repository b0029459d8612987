"""Verification curves of embeddings: all pairs pooled, or query by query."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.approximation import full_products
from kinfold.metrics._ranking.query_gallery import Distance
from kinfold.metrics._ranking.ranker import Depth, Ranker
from kinfold.metrics.inputs import Embeddings, prepare
from kinfold.metrics.verification import MOST_POSITIVES, Curve, pooled_curve
from kinfold.pairs.labels import Labels


@dataclass(frozen=True)
class QueryCurves:
    """Curves of single queries, averaged over the queries that have both kin and others.

    far, tar: (points,) true-accept rate at false-accept rates; recall, precision: (points,) the precision where that
    share of the relevant items has been found. roc_auc, pr_auc: means over queries of the areas.
    """

    far: Tensor
    tar: Tensor
    recall: Tensor
    precision: Tensor
    roc_auc: float
    pr_auc: float
    queries: int


def verify(
    embeddings: Embeddings,
    labels: Labels,
    gallery: Embeddings | None = None,
    gallery_labels: Labels | None = None,
    distance: Distance = "cosine",
    device: torch.device | str | None = None,
    *,
    most: int = MOST_POSITIVES,
    ranks: bool | None = None,
) -> Curve:
    """ROC and precision-recall over all pairs in one pool; exact up to `most` positive pairs, in 2^20 bins beyond.

    >>> curve = verify(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.7]]), [0, 0, 1, 1])
    >>> round(curve.roc_auc(), 3), round(curve.pr_auc(), 3)
    (0.75, 0.75)
    """
    comparison, relevant, _ = prepare(embeddings, labels, gallery, gallery_labels, distance, device)
    with full_products(comparison.gallery.device):
        return pooled_curve(comparison, relevant, World.current(ranks), most)


def query_curves(
    embeddings: Embeddings,
    labels: Labels,
    gallery: Embeddings | None = None,
    gallery_labels: Labels | None = None,
    distance: Distance = "cosine",
    device: torch.device | str | None = None,
    *,
    points: int = 201,
    ranks: bool | None = None,
) -> QueryCurves:
    """ROC and precision-recall of each query's own ranking, averaged."""
    comparison, relevant, _ = prepare(embeddings, labels, gallery, gallery_labels, distance, device)
    world, counts = World.current(ranks), relevant.counts
    negatives = comparison.size - comparison.same - counts
    queries = relevant.order()
    queries = queries[negatives[queries] > 0]
    grid = torch.linspace(0.0, 1.0, points, dtype=torch.float64, device=queries.device)
    tar, precision = torch.zeros_like(grid), torch.zeros_like(grid)
    areas = grid.new_zeros(2)
    with full_products(comparison.gallery.device):
        for which, rank in Ranker(comparison, relevant, Depth(full=True)).blocks(world.take_share(queries)):
            found, against = counts[which, None].double(), negatives[which, None].double()
            j = torch.arange(1, rank.shape[1] + 1, device=rank.device)
            real = j <= found
            met = torch.where(real, (rank - j) / against, 2.0)  # the share of others above the j-th relevant item
            correct = torch.where(real, j / rank.double(), 0.0)
            tar += (torch.searchsorted(met, grid.expand(which.shape[0], -1).contiguous(), right=True) / found).sum(
                dim=0
            )
            # interpolated as usual: the best precision at this recall or a later one
            best = correct.flip(1).cummax(dim=1).values.flip(1)
            place = (grid * found - 1e-9).ceil().clamp(min=1).long() - 1
            precision += best.gather(1, place).sum(dim=0)
            areas[0] += (torch.where(real, 1.0 - met, 0.0).sum(dim=1, keepdim=True) / found).sum()
            areas[1] += (correct.sum(dim=1, keepdim=True) / found).sum()
    for part in (tar, precision, areas):
        world.sum_in_place(part)
    total = max(1, queries.shape[0])
    mean = (areas / total if queries.shape[0] else areas + torch.nan).tolist()
    return QueryCurves(grid, tar / total, grid, precision / total, mean[0], mean[1], queries.shape[0])
