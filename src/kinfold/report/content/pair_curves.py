"""Curves over pairs and ranks: ROC, precision-recall, recall@k, and how similar kin and others are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import metrics
from kinfold.data.items import Array
from kinfold.metrics._ranking.query_gallery import Distance, prepare_rows
from kinfold.report.content.json_values import numbers
from kinfold.report.content.map_layout import sample_items

ALL_PAIRS = 10_000  # items up to which every pair is looked at
QUERIES = 4_000  # items whose pairs with all others are looked at beyond that
POINTS = 300
BINS = 80
_BLOCK = 1024


@dataclass(frozen=True)
class Pool:
    """Rows and labels of queries and of what they are compared with; same: each other."""

    queries: Tensor
    labels: Tensor
    gallery: Tensor
    gallery_labels: Tensor
    same: bool

    @staticmethod
    def of(rows: Tensor, labels: Tensor, query: Tensor, gallery: Tensor) -> "Pool":
        """query, gallery: boolean (N,), equal where items are compared with each other. Of many, some queries."""
        if bool((query == gallery).all()):
            if rows.shape[0] <= ALL_PAIRS:
                return Pool(rows, labels, rows, labels, True)
            chosen = torch.zeros_like(query)
            chosen[sample_items(labels, QUERIES)] = True
            return Pool(rows[chosen], labels[chosen], rows[~chosen], labels[~chosen], False)
        places = query.nonzero().squeeze(1)
        if places.shape[0] > QUERIES and rows.shape[0] > ALL_PAIRS:
            places = places[sample_items(labels[places], QUERIES)]
        return Pool(rows[places], labels[places], rows[gallery], labels[gallery], False)

    @property
    def told(self) -> str:
        return f"{self.queries.shape[0]:,} items against {self.gallery.shape[0]:,} others"


def pair_curves(pool: Pool, distance: Distance) -> list[dict[str, Any]]:
    """ROC and precision-recall over all pairs in one pool; none where all pairs are kin, or all are not."""
    options: dict[str, Any] = {} if pool.same else {"gallery": pool.gallery, "gallery_labels": pool.gallery_labels}
    curve = metrics.verify(pool.queries, pool.labels, distance=distance, ranks=False, **options)
    if not (curve.positives and curve.negatives):
        return []
    far, tar = (part.numpy() for part in curve.roc())
    recall, precision = (part.numpy() for part in curve.precision_recall())
    smallest = max(1.0 / curve.negatives, 1e-6)
    grid = np.unique(np.concatenate([np.geomspace(smallest, 1.0, POINTS // 2), np.linspace(0.0, 1.0, POINTS // 2)]))
    axes = {"x_label": "false-positive rate", "y_label": "true-positive rate", "log_x": True}
    roc = {"title": "ROC", **axes, **_thinned(far, tar, grid)}
    axes = {"x_label": "recall", "y_label": "precision", "log_x": False}
    pairs = {"title": "precision-recall", **axes, **_thinned(recall, precision, np.linspace(0.0, 1.0, POINTS))}
    return [roc, pairs]


def histogram(pool: Pool, distance: Distance) -> dict[str, list[Any]] | None:
    """Shares of kin pairs and of others by similarity (or distance); None where one of them has no pair."""
    if distance == "cosine":
        low, high = -1.0, 1.0
    else:
        ends = [(float(scores.min()), float(scores.max())) for scores, _ in _scores(pool, distance) if scores.numel()]
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        high = high if high > low else low + 1.0
    counts = torch.zeros(2, BINS, dtype=torch.int64)
    for scores, kin in _scores(pool, distance):
        place = ((scores - low) * (BINS / (high - low))).long().clamp(0, BINS - 1)
        counts[0] += torch.bincount(place[kin], minlength=BINS)
        counts[1] += torch.bincount(place[~kin], minlength=BINS)
    if not bool((counts.sum(dim=1) > 0).all()):
        return None
    shares = counts.double() / counts.sum(dim=1, keepdim=True)
    used = counts.sum(dim=0).nonzero().squeeze(1)
    first, last = int(used[0]), int(used[-1]) + 1  # empty ends tell nothing
    edges = np.linspace(low, high, BINS + 1)[first : last + 1]
    kin_shares, other_shares = (numbers(part[first:last].tolist()) for part in shares)
    return {"edges": numbers(edges.tolist()), "kin": kin_shares, "others": other_shares}


def _scores(pool: Pool, distance: Distance) -> Iterator[tuple[Tensor, Tensor]]:
    """Similarities or distances of pairs as users read them, and which are kin; within one set each pair once."""
    comparison = prepare_rows(pool.queries, None if pool.same else pool.gallery, distance)
    columns = torch.arange(comparison.size)
    for start in range(0, pool.queries.shape[0], _BLOCK):
        x = comparison.queries[start : start + _BLOCK]
        if distance == "euclidean":
            found = torch.cdist(x, comparison.gallery).square_().neg_()
        else:
            found = x @ comparison.gallery.T
        kin = pool.labels[start : start + _BLOCK, None] == pool.gallery_labels
        if pool.same:
            once = columns > torch.arange(start, start + x.shape[0])[:, None]
            found, kin = found[once], kin[once]
        yield comparison.values(found.flatten()), kin.flatten()


def _thinned(x: Array, y: Array, grid: Array) -> dict[str, list[float | None]]:
    """The points of a curve nearest below those of a grid: all of them are points of the curve."""
    places = np.unique(np.concatenate([[0], np.searchsorted(x, grid, side="right") - 1, [len(x) - 1]]).clip(0))
    return {"x": numbers(x[places].tolist()), "y": numbers(y[places].tolist())}
