"""Verification: is a pair positive? Curves of all pairs together, or averaged over queries."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics._ranking.fast_products import use_full_precision
from kinfold.metrics._ranking.query_gallery import Distance
from kinfold.metrics._ranking.ranker import Ranker
from kinfold.metrics.inputs import Embeddings, prepare_inputs
from kinfold.metrics.verification_curve import MAX_EXACT_POSITIVES, VerificationCurve, compute_curve
from kinfold.pairs.labels import Labels


@dataclass(frozen=True)
class QueryCurves:
    """Curves of single queries, averaged over the queries that have both positives and negatives.

    Args:
        far: False-accept rates, (points,).
        tar: True-accept rates at these, (points,).
        recall: Shares of the relevant items, (points,).
        precision: The precision where that share has been found, (points,).
        roc_auc: The mean over queries of the area under the ROC curve.
        pr_auc: The mean over queries of the average precision.
        queries: The number of queries.
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
    max_exact_positives: int = MAX_EXACT_POSITIVES,
    world: World | None = None,
) -> VerificationCurve:
    """Compute ROC and precision-recall over all pairs.

    Args:
        embeddings: (Q, d).
        labels: One label for each row, integers or strings.
        gallery: (N, d). Without it all pairs of the embeddings count, each once.
        gallery_labels: One label for each gallery row.
        distance: "cosine", "dot", "euclidean" or "hyperbolic", see `kinfold.pairs.distances`.
        device: Where to compute; None computes where the rows are.
        max_exact_positives: The number of positive pairs up to which the curve is exact. Beyond, scores are counted in
            2^20 bins.
        world: The processes that share the work; None takes the running process group, `World()` this process alone.

    Returns:
        The curve, with its areas and rates as methods.

    Examples:
        >>> curve = verify(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.7]]), [0, 0, 1, 1])
        >>> round(curve.roc_auc(), 3), round(curve.pr_auc(), 3)
        (0.75, 0.75)
    """
    query_gallery, relevance, _ = prepare_inputs(embeddings, labels, gallery, gallery_labels, distance, device)
    with use_full_precision(query_gallery.gallery.device):
        return compute_curve(query_gallery, relevance, world or World.current(), max_exact_positives)


def query_curves(
    embeddings: Embeddings,
    labels: Labels,
    gallery: Embeddings | None = None,
    gallery_labels: Labels | None = None,
    distance: Distance = "cosine",
    device: torch.device | str | None = None,
    *,
    points: int = 201,
    world: World | None = None,
) -> QueryCurves:
    """Compute ROC and precision-recall of the ranking of each query, averaged over queries.

    Args:
        embeddings: (Q, d).
        labels: One label for each row, integers or strings.
        gallery: (N, d). Without it every item is a query against all others.
        gallery_labels: One label for each gallery row.
        distance: "cosine", "dot", "euclidean" or "hyperbolic", see `kinfold.pairs.distances`.
        device: Where to compute; None computes where the rows are.
        points: The number of points of each curve, evenly spaced from 0 to 1.
        world: The processes that share the work; None takes the running process group, `World()` this process alone.

    Returns:
        The mean curves and areas.
    """
    query_gallery, relevance, _ = prepare_inputs(embeddings, labels, gallery, gallery_labels, distance, device)
    world, counts = world or World.current(), relevance.counts
    negatives = query_gallery.size - query_gallery.is_same_set - counts
    queries = relevance.order_queries()
    queries = queries[negatives[queries] > 0]
    grid = torch.linspace(0.0, 1.0, points, dtype=torch.float64, device=queries.device)
    tar, precision = torch.zeros_like(grid), torch.zeros_like(grid)
    areas = grid.new_zeros(2)
    with use_full_precision(query_gallery.gallery.device):
        ranker = Ranker(query_gallery, relevance, RankDepth(full=True))
        for block, ranks in ranker.rank_blocks(world.take_share(queries)):
            relevant_count, negative_count = counts[block, None].double(), negatives[block, None].double()
            j = torch.arange(1, ranks.shape[1] + 1, device=ranks.device)
            valid = j <= relevant_count
            # the share of negatives above the j-th relevant item, and the precision there
            far_at = torch.where(valid, (ranks - j) / negative_count, 2.0)
            precision_at = torch.where(valid, j / ranks.double(), 0.0)
            accepted = torch.searchsorted(far_at, grid.expand(block.shape[0], -1).contiguous(), right=True)
            tar += (accepted / relevant_count).sum(dim=0)
            # interpolated as usual: the best precision at this recall or a later one
            best = precision_at.flip(1).cummax(dim=1).values.flip(1)
            position = (grid * relevant_count - 1e-9).ceil().clamp(min=1).long() - 1
            precision += best.gather(1, position).sum(dim=0)
            areas[0] += (torch.where(valid, 1.0 - far_at, 0.0).sum(dim=1, keepdim=True) / relevant_count).sum()
            areas[1] += (precision_at.sum(dim=1, keepdim=True) / relevant_count).sum()
    for part in (tar, precision, areas):
        world.sum_in_place(part)
    total = max(1, queries.shape[0])
    mean = (areas / total if queries.shape[0] else areas + torch.nan).tolist()
    return QueryCurves(grid, tar / total, grid, precision / total, mean[0], mean[1], queries.shape[0])
