"""Measurements of one embedding space: layout, neighbors, best and worst queries, confused classes, curves, spectra."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kinfold import metrics
from kinfold.data import Dataset
from kinfold.distributed import World
from kinfold.metrics import Distance
from kinfold.metrics._ranking.query_gallery import build_query_gallery
from kinfold.report.content.json_values import round_number, round_numbers
from kinfold.report.content.map_layout import compute_layout, sample_items
from kinfold.report.content.pair_curves import PairPool, compute_histogram, compute_pair_curves
from kinfold.tsne import has_tsne

NEIGHBORS = 10
QUERIES = 8  # best, and as many worst
CONFUSED = 15  # pairs of classes
RANKS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 200, 500, 1000)
DIAGNOSTICS = ("rho@1", "rho@2", "density", "uniformity", "alignment", "intra", "inter")
MAX_SPECTRUM = 400  # singular values
MAX_CLASS_SPECTRUM = 35
_QUERY_METRIC = "map@r"


def measure_space(rows: Tensor, data: Dataset, distance: Distance, points: int) -> dict[str, Any]:
    """Measure everything that a report shows of an embedding space.

    Queries are compared with the gallery if the dataset has both, else items with each other.

    Args:
        rows: Embeddings (N, d).
        data: Their items and labels.
        distance: How embeddings are compared.
        points: How many items the map shows at most.

    Returns:
        Items are given by their positions in the dataset. "shown" (n,); "layout" (n, 2) or None without scikit-learn;
        "neighbors" and "scores" (n, 10), over the whole dataset; and more.
    """
    query, gallery = _get_roles(data)
    gallery_items = gallery.nonzero().squeeze(1)
    if rows.shape[0] < 2 or gallery_items.shape[0] < 2:
        raise ValueError(f"{data.name} has too few items to compare: {rows.shape[0]}")
    prepared = build_query_gallery(rows, None, distance).queries  # raises if a row is not finite
    gallery_positions = torch.full((rows.shape[0],), -1)
    gallery_positions[gallery_items] = torch.arange(gallery_items.shape[0])  # an item is not its own neighbor
    scores, near = metrics.neighbors(rows, rows[gallery_items], NEIGHBORS, distance, exclude=gallery_positions)
    near = gallery_items[near]
    shown = sample_items(data.labels, points)
    pool = PairPool.create(rows, data.labels, query, gallery)
    recalls, precisions = _evaluate_queries(rows, data, query, gallery, distance)
    class_sizes = torch.bincount(data.labels[gallery], minlength=int(data.labels.max()) + 1)
    diagnostics = _evaluate_diagnostics(prepared, data.labels) | {"recall@1": recalls.get(1, float("nan"))}
    return {
        "count": rows.shape[0],
        "shown": shown,
        "layout": torch.from_numpy(compute_layout(prepared[shown])) if has_tsne() else None,
        "neighbors": near[shown].to(torch.int32),
        "scores": scores[shown].float(),
        **_select_queries(precisions, query.nonzero().squeeze(1), data.labels, near, scores, class_sizes[data.labels]),
        "confused": _count_confusions(data.labels, query, near),
        "curves": {**compute_pair_curves(pool, distance), **_describe_recalls(recalls)},
        "pairs": pool.describe(),
        "histogram": compute_histogram(pool, distance),
        "spectrum": {
            "whole": round_numbers(metrics.spectrum(prepared)[:MAX_SPECTRUM].tolist()),
            "classes": round_numbers(metrics.class_spectrum(prepared, data.labels, MAX_CLASS_SPECTRUM).tolist()),
        },
        "diagnostics": {name: round_number(value) for name, value in diagnostics.items()},
    }


def _get_roles(data: Dataset) -> tuple[Tensor, Tensor]:
    """Boolean masks of queries and gallery; all items in both if the dataset has no roles."""
    if data.role is None or not (data.role == "query").any():
        everything = torch.ones(len(data), dtype=torch.bool)
        return everything, everything
    return torch.from_numpy(data.role == "query"), torch.from_numpy(data.role == "gallery")


def _evaluate_queries(
    rows: Tensor, data: Dataset, query: Tensor, gallery: Tensor, distance: Distance
) -> tuple[dict[int, float], Tensor]:
    """Recall by rank, and the average precision at R of each query."""
    same = bool((query == gallery).all())
    ranks = [k for k in RANKS if k <= int(gallery.sum()) - same]
    against: dict[str, Any] = {} if same else {"gallery": rows[gallery], "gallery_labels": data.labels[gallery]}
    names = [*(f"recall@{k}" for k in ranks), _QUERY_METRIC]
    result = metrics.examine(
        rows[query], data.labels[query], metrics=names, distance=distance, world=World(), **against
    )
    return {k: result.values[f"recall@{k}"] for k in ranks}, result.per_query[_QUERY_METRIC]


def _evaluate_diagnostics(rows: Tensor, labels: Tensor) -> dict[str, float]:
    names = [name for name in DIAGNOSTICS if name != "rho@2" or min(rows.shape) > 1]
    return metrics.evaluate(rows, labels, metrics=names, distance="dot", world=World())


def _describe_recalls(recalls: dict[int, float]) -> dict[str, dict[str, Any]]:
    defined = {k: value for k, value in recalls.items() if value == value}
    return {"recall@k": {"x": [*defined], "y": round_numbers(defined.values())}} if defined else {}


def _select_queries(
    precisions: Tensor, queries: Tensor, labels: Tensor, near: Tensor, scores: Tensor, positives: Tensor
) -> dict[str, Any]:
    """Select the best and the worst queries, one of a class, with their neighbors.

    Among equal queries, those with more positives come first at both ends: to retrieve or to miss many says more.

    Args:
        precisions: Average precision of each query.
        queries: Positions of the queries.
        labels: Labels of all items.
        near: Neighbors of all items.
        scores: Scores of these neighbors.
        positives: For all items, how many items of the gallery are of the same class.

    Returns:
        "best" and "worst"; "ties": how many of all queries have the value of the last one shown.
    """
    defined = (~precisions.isnan()).nonzero().squeeze(1)
    defined = defined[torch.argsort(positives[queries[defined]], descending=True, stable=True)]

    def select(descending: bool) -> list[dict[str, Any]]:
        order: Sequence[int] = defined[torch.argsort(precisions[defined], descending=descending, stable=True)].tolist()
        entries: dict[int, dict[str, Any]] = {}
        for index in order:
            item = int(queries[index])
            label = int(labels[item])
            if label not in entries:
                neighbors, similarity = near[item].tolist(), round_numbers(scores[item].tolist())
                value = float(precisions[index])
                entries[label] = {"query": item, "neighbors": neighbors, "scores": similarity, "value": value}
            if len(entries) == QUERIES:
                break
        return [*entries.values()]

    ends = {"best": select(descending=True), "worst": select(descending=False)}
    ties = {key: int((precisions == entries[-1]["value"]).sum()) if entries else 0 for key, entries in ends.items()}
    return {**ends, "ties": ties}


def _count_confusions(labels: Tensor, query: Tensor, near: Tensor) -> list[dict[str, Any]]:
    """Count queries whose nearest neighbor is of another class, for each pair of classes in both directions together.

    "share" is the fraction of all queries of the two classes.
    """
    query_labels = labels[query]
    nearest = labels[near[query, 0]]
    sizes = torch.bincount(query_labels, minlength=int(labels.max()) + 1)
    confused = nearest != query_labels
    pairs = zip(query_labels[confused].tolist(), nearest[confused].tolist(), strict=True)
    counts = Counter((min(pair), max(pair)) for pair in pairs)
    largest = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:CONFUSED]
    return [
        {"first": a, "second": b, "count": count, "share": round_number(count / max(1, int(sizes[a] + sizes[b])))}
        for (a, b), count in largest
    ]
