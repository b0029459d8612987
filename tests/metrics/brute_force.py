"""Naive float64 references, straight from the definitions: full sorts and loops over queries."""

import numpy as np


def unit(x):
    """Rows as compared by the cosine; those of length one to the rounding of their type stay as they are."""
    x = np.asarray(x)
    length = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    length[(length == 0) | (np.abs(length - 1) < 4 * np.finfo(x.dtype).eps)] = 1.0
    return (x.astype(np.float64) / length).astype(x.dtype)


def scores(queries, gallery, distance):
    """Exact scores (Q, N): one float64 sum for each pair, so that equal rows tie."""
    if distance == "cosine":
        queries, gallery = unit(queries), unit(gallery)
    queries, gallery = np.asarray(queries, dtype=np.float64), np.asarray(gallery, dtype=np.float64)
    if distance == "hyperbolic":
        return poincare_scores(queries, gallery)
    if distance == "euclidean":
        return -np.stack([((gallery - q) ** 2).sum(axis=1) for q in queries])
    return np.stack([(gallery * q).sum(axis=1) for q in queries])


def poincare_scores(queries, gallery, curvature=0.1, radius=2.3):
    """Minus |p - q|^2 / ((1 - c |p|^2) (1 - c |q|^2)), which ranks as minus the distance in the Poincare ball."""

    def to_ball(x):
        length = np.linalg.norm(x, axis=1, keepdims=True)
        reach = np.sqrt(curvature) * np.minimum(length, radius)
        return np.divide(x, length, out=np.zeros_like(x), where=length > 0) * np.tanh(reach) / np.sqrt(curvature)

    p, q = to_ball(queries), to_ball(gallery)
    left, right = (1 - curvature * (part**2).sum(axis=1) for part in (p, q))
    return -np.stack([((q - row) ** 2).sum(axis=1) / (a * right) for row, a in zip(p, left, strict=True)])


def rankings(queries, gallery, distance):
    """For each query all gallery indices, closest first, ties by index, itself left out if the gallery is None."""
    same = gallery is None
    score_matrix = scores(queries, queries if same else gallery, distance)
    orders = []
    for i, row in enumerate(score_matrix):
        order = np.lexsort((np.arange(len(row)), -row))
        orders.append(order[order != i] if same else order)
    return orders


def retrieval(queries, labels, gallery=None, gallery_labels=None, distance="cosine"):
    """Every retrieval metric by a loop over queries."""
    same = gallery is None
    all_labels = np.asarray(labels if same else gallery_labels)
    totals = {}

    def add(name, value):
        totals.setdefault(name, []).append(value)

    for i, order in enumerate(rankings(queries, gallery, distance)):
        hit = all_labels[order] == labels[i]
        n = int(hit.sum())
        size = n + 1 if same else n
        if n == 0:
            for name in ("map@c", "map@1000", "map@c-printed", "map@1000-printed"):
                add(name, 0.0)
            continue
        ranks = np.flatnonzero(hit) + 1
        precision_at_hits = np.arange(1, n + 1) / ranks
        for k in (1, 2, 4, 8, 10, 100):
            add(f"recall@{k}", float(hit[:k].any()))
            add(f"precision@{k}", hit[:k].sum() / k)
            add(f"map@{k}", precision_at_hits[ranks <= k].sum() / min(n, k))
        add("r-precision", hit[:n].sum() / n)
        add("map@r", precision_at_hits[ranks <= n].sum() / n)
        add("map", precision_at_hits.sum() / n)
        add("map@c", precision_at_hits[ranks <= size].sum() / size)
        add("map@1000", precision_at_hits[ranks <= 1000].sum() / size)
        add("map@c-printed", hit[:size].sum() / size)
        add("map@1000-printed", hit[:1000].sum() / 1000)
        add("mrr", 1.0 / ranks[0])
    return {name: float(np.mean(values)) for name, values in totals.items()}
