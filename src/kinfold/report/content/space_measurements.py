"""One space, looked at from all sides: where points lie, who is next to whom, what goes well and what is confused."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kinfold import metrics
from kinfold.data import Dataset
from kinfold.metrics._ranking.query_gallery import Distance, prepare_rows
from kinfold.report.content.json_values import number, numbers
from kinfold.report.content.map_layout import compute_tsne, has_tsne, sample_items
from kinfold.report.content.pair_curves import Pool, histogram, pair_curves

NEIGHBOURS = 10
QUERIES = 8  # best, and as many worst
CONFUSED = 15
RANKS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 200, 500, 1000)
SPACE = ("rho@1", "rho@2", "density", "uniformity", "alignment", "intra", "inter")
SPECTRUM = 400  # values shown at most
CLASS_SPECTRUM = 35
_JUDGED = "map@r"


def measured_space(rows: Tensor, data: Dataset, distance: Distance, points: int) -> dict[str, Any]:
    """All that a report shows of embeddings (N, d) of a data set, items by their positions in it.

    shown (n,); plane (n, 2) or None without scikit-learn; neighbors and scores (n, 10) over the whole set. Queries are
    compared with the gallery where the data tells them apart, items with each other elsewhere.
    """
    query, gallery = _roles(data)
    places = gallery.nonzero().squeeze(1)
    if rows.shape[0] < 2 or places.shape[0] < 2:
        raise ValueError(f"{data.name} has too few items to compare: {rows.shape[0]}")
    compared = prepare_rows(rows, None, distance).queries  # raises where a row is not finite
    where = torch.full((rows.shape[0],), -1)
    where[places] = torch.arange(places.shape[0])  # items of the gallery leave themselves out
    scores, found = metrics.neighbors(rows, rows[places], NEIGHBOURS, distance, exclude=where)
    found = places[found]
    shown = sample_items(data.labels, points)
    pool = Pool.of(rows, data.labels, query, gallery)
    values, per_query = _retrieval(rows, data, query, gallery, distance)
    options = metrics.spectrum(compared)
    diagnostics = {name: number(value) for name, value in _space_values(compared, data.labels).items()}
    return {
        "count": rows.shape[0],
        "shown": shown,
        "plane": torch.from_numpy(compute_tsne(compared[shown])) if has_tsne() else None,
        "neighbors": found[shown].to(torch.int32),
        "scores": scores[shown].float(),
        **_extremes(per_query, query.nonzero().squeeze(1), data.labels, found, scores, _kin(data.labels, gallery)),
        "confused": _confused(data.labels, query, found),
        "curves": [*pair_curves(pool, distance), *_recalls(values)],
        "pairs": "" if pool.same else pool.told,
        "histogram": histogram(pool, distance),
        "spectrum": {
            "whole": numbers(options[:SPECTRUM].tolist()),
            "classes": numbers(metrics.class_spectrum(compared, data.labels, CLASS_SPECTRUM).tolist()),
        },
        "diagnostics": {**diagnostics, "recall@1": number(values.get("recall@1"))},
    }


def _roles(data: Dataset) -> tuple[Tensor, Tensor]:
    """Which items ask and which are found; all of them where the data does not say."""
    if data.role is None or not (data.role == "query").any():
        everything = torch.ones(len(data), dtype=torch.bool)
        return everything, everything
    return torch.from_numpy(data.role == "query"), torch.from_numpy(data.role == "gallery")


def _retrieval(
    rows: Tensor, data: Dataset, query: Tensor, gallery: Tensor, distance: Distance
) -> tuple[dict[str, float], Tensor]:
    """recall@k, and the average precision of each query at R, the number of its kin."""
    same = bool((query == gallery).all())
    most = int(gallery.sum()) - same
    names = [f"recall@{k}" for k in RANKS if k <= most]
    against: dict[str, Any] = {} if same else {"gallery": rows[gallery], "gallery_labels": data.labels[gallery]}
    found = metrics.examine(
        rows[query], data.labels[query], metrics=[*names, _JUDGED], distance=distance, ranks=False, **against
    )
    return {name: found.values[name] for name in names}, found.per_query[_JUDGED]


def _space_values(rows: Tensor, labels: Tensor) -> dict[str, float]:
    names = [name for name in SPACE if name != "rho@2" or min(rows.shape) > 1]
    return metrics.evaluate(rows, labels, metrics=names, distance="dot", ranks=False)


def _recalls(values: dict[str, float]) -> list[dict[str, Any]]:
    known = {int(name.partition("@")[2]): value for name, value in values.items() if value == value}
    if not known:
        return []
    axes = {"x_label": "k", "y_label": "recall@k", "log_x": True}
    return [{"title": "recall@k", **axes, "x": [*known], "y": numbers(known.values())}]


def _kin(labels: Tensor, gallery: Tensor) -> Tensor:
    """For every item, how many of the gallery are of its class; itself counts where it is among them."""
    return torch.bincount(labels[gallery], minlength=int(labels.max()) + 1)[labels]


def _extremes(
    values: Tensor, queries: Tensor, labels: Tensor, found: Tensor, scores: Tensor, kin: Tensor
) -> dict[str, Any]:
    """The best and the worst queries, one of a class, with their neighbours; alike: how many of all queries have the
    value of the last one shown.

    Of equals those with more kin come first at both ends, because to find or to miss many says more than one.
    """
    counted = (~values.isnan()).nonzero().squeeze(1)
    counted = counted[torch.argsort(kin[queries[counted]], descending=True, stable=True)]

    def ordered(descending: bool) -> list[int]:
        order: list[int] = counted[torch.argsort(values[counted], descending=descending, stable=True)].tolist()
        return order

    def chosen(places: Sequence[int]) -> list[dict[str, Any]]:
        entries: dict[int, dict[str, Any]] = {}
        for place in places:
            item = int(queries[place])
            label = int(labels[item])
            if label not in entries:
                near, score = found[item].tolist(), numbers(scores[item].tolist())
                entries[label] = {"query": item, "neighbors": near, "scores": score, "value": float(values[place])}
            if len(entries) == QUERIES:
                break
        return [*entries.values()]

    ends = {"best": chosen(ordered(True)), "worst": chosen(ordered(False))}
    alike = {key: int((values == entries[-1]["value"]).sum()) if entries else 0 for key, entries in ends.items()}
    return {**ends, "alike": alike}


def _confused(labels: Tensor, query: Tensor, found: Tensor) -> list[dict[str, Any]]:
    """Pairs of classes of which one is taken for the other by the nearest neighbour, in both directions together.

    share: of all queries of the two classes.
    """
    asked = labels[query]
    nearest = labels[found[query, 0]]
    sizes = torch.bincount(asked, minlength=int(labels.max()) + 1)
    wrong = nearest != asked
    pairs = zip(asked[wrong].tolist(), nearest[wrong].tolist(), strict=True)
    counts = Counter((min(pair), max(pair)) for pair in pairs)
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:CONFUSED]
    return [
        {"first": a, "second": b, "count": count, "share": number(count / max(1, int(sizes[a] + sizes[b])))}
        for (a, b), count in ordered
    ]
