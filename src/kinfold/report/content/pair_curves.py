"""Curves over pairs of items: ROC, precision-recall, and the similarities of positive and negative pairs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import metrics
from kinfold.data.items import Array
from kinfold.distributed import World
from kinfold.metrics import Distance
from kinfold.metrics._ranking.query_gallery import build_query_gallery
from kinfold.report.content.json_values import round_numbers
from kinfold.report.content.map_layout import sample_items

MAX_ITEMS = 10_000  # up to this number of items all pairs are taken
MAX_QUERIES = 4_000  # beyond it, the pairs of so many items with all others
POINTS = 300  # of a curve
BINS = 80
_CHUNK_ROWS = 1024


@dataclass(frozen=True)
class PairPool:
    """Embeddings and labels whose pairs are taken.

    Args:
        queries: (Q, d)
        labels: (Q,)
        gallery: (G, d)
        gallery_labels: (G,)
        same: Whether queries and gallery are the same items.
    """

    queries: Tensor
    labels: Tensor
    gallery: Tensor
    gallery_labels: Tensor
    same: bool

    @staticmethod
    def create(rows: Tensor, labels: Tensor, query: Tensor, gallery: Tensor) -> "PairPool":
        """Choose the pairs of a dataset.

        Args:
            rows: Embeddings (N, d).
            labels: (N,)
            query: Boolean mask (N,) of the queries.
            gallery: Boolean mask (N,) of the gallery, equal to `query` if items are compared with each other.
        """
        if bool((query == gallery).all()):
            if rows.shape[0] <= MAX_ITEMS:
                return PairPool(rows, labels, rows, labels, True)
            chosen = torch.zeros_like(query)
            chosen[sample_items(labels, MAX_QUERIES)] = True
            return PairPool(rows[chosen], labels[chosen], rows[~chosen], labels[~chosen], False)
        queries = query.nonzero().squeeze(1)
        if queries.shape[0] > MAX_QUERIES and rows.shape[0] > MAX_ITEMS:
            queries = queries[sample_items(labels[queries], MAX_QUERIES)]
        return PairPool(rows[queries], labels[queries], rows[gallery], labels[gallery], False)

    def describe(self) -> str:
        """Say which pairs were taken; empty if all."""
        return "" if self.same else f"{self.queries.shape[0]:,} items against {self.gallery.shape[0]:,} others"


def compute_pair_curves(pool: PairPool, distance: Distance) -> dict[str, dict[str, Any]]:
    """Compute ROC and precision-recall over all pairs; empty if all pairs are positive, or all are negative."""
    options: dict[str, Any] = {} if pool.same else {"gallery": pool.gallery, "gallery_labels": pool.gallery_labels}
    curve = metrics.verify(pool.queries, pool.labels, distance=distance, world=World(), **options)
    if not (curve.positives and curve.negatives):
        return {}
    far, tar = (part.numpy() for part in curve.roc())
    recall, precision = (part.numpy() for part in curve.precision_recall())
    smallest = max(1.0 / curve.negatives, 1e-6)
    grid = np.unique(np.concatenate([np.geomspace(smallest, 1.0, POINTS // 2), np.linspace(0.0, 1.0, POINTS // 2)]))
    return {
        "roc": _thin_out(far, tar, grid),
        "precision-recall": _thin_out(recall, precision, np.linspace(0.0, 1.0, POINTS)),
    }


def compute_histogram(pool: PairPool, distance: Distance) -> dict[str, list[Any]] | None:
    """Compute the shares of positive and of negative pairs by similarity (or distance).

    Returns:
        "edges" of the bins, and the shares of "positives" and "negatives"; None if one of them has no pair.
    """
    if distance == "cosine":
        low, high = -1.0, 1.0
    else:
        ends = [(float(part.min()), float(part.max())) for part, _ in _compare(pool, distance) if part.numel()]
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        high = high if high > low else low + 1.0
    counts = torch.zeros(2, BINS, dtype=torch.int64)
    for scores, positive in _compare(pool, distance):
        bins = ((scores - low) * (BINS / (high - low))).long().clamp(0, BINS - 1)
        counts[0] += torch.bincount(bins[positive], minlength=BINS)
        counts[1] += torch.bincount(bins[~positive], minlength=BINS)
    if not bool((counts.sum(dim=1) > 0).all()):
        return None
    shares = counts.double() / counts.sum(dim=1, keepdim=True)
    used = counts.sum(dim=0).nonzero().squeeze(1)
    first, last = int(used[0]), int(used[-1]) + 1  # without the empty bins at both ends
    edges = np.linspace(low, high, BINS + 1)[first : last + 1]
    positives, negatives = (round_numbers(part[first:last].tolist()) for part in shares)
    return {"edges": round_numbers(edges.tolist()), "positives": positives, "negatives": negatives}


def _compare(pool: PairPool, distance: Distance) -> Iterator[tuple[Tensor, Tensor]]:
    """Similarities or distances of pairs in row chunks, and which pairs are positive; each pair of one set once."""
    comparison = build_query_gallery(pool.queries, None if pool.same else pool.gallery, distance)
    columns = torch.arange(comparison.size)
    for start in range(0, pool.queries.shape[0], _CHUNK_ROWS):
        x = comparison.queries[start : start + _CHUNK_ROWS]
        scores = comparison.score_matrix(x, comparison.gallery)
        positive = pool.labels[start : start + _CHUNK_ROWS, None] == pool.gallery_labels
        if pool.same:
            once = columns > torch.arange(start, start + x.shape[0])[:, None]
            scores, positive = scores[once], positive[once]
        yield comparison.convert_scores(scores.flatten()), positive.flatten()


def _thin_out(x: Array, y: Array, grid: Array) -> dict[str, list[float | None]]:
    """Keep the points of a curve nearest below those of a grid."""
    kept = np.unique(np.concatenate([[0], np.searchsorted(x, grid, side="right") - 1, [len(x) - 1]]).clip(0))
    return {"x": round_numbers(x[kept].tolist()), "y": round_numbers(y[kept].tolist())}
