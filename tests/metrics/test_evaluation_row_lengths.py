"""Rows of every length in one set: metrics, neighbors and verification equal a numpy reference.

The reference normalizes each row on its own, in float64, after dividing by its largest entry. It shares no code with
the package, and none with the other references of these tests.
"""

import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.metrics import (
    adjusted_mutual_info_score,
    average_precision_score,
    normalized_mutual_info_score,
    roc_auc_score,
    roc_curve,
)
from sklearn.metrics.cluster import pair_confusion_matrix

import kinfold
from kinfold.metrics._ranking.rows import normalize_rows

CLASSES, DIM, ROWS = 7, 10, 56
LENGTHS = {  # what the rows of a kind are multiplied by; the numbers below 1e-300 and 1e-38 are subnormal
    np.float64: {"tiny": [1e-160, 1e-200, 1e-305, 1e-310], "huge": [1e160, 1e250, 1e307]},
    np.float32: {"tiny": [1e-25, 1e-37, 1e-40, 1e-41], "huge": [1e18, 1e25, 1e37]},
}
MIXTURES = [
    "unit zero",
    "unit tiny",
    "unit huge",
    "raw zero",
    "raw tiny",
    "raw huge",
    "unit raw zero tiny huge",
    "unit one-zero",
    "unit one-tiny",
    "unit one-huge",
]
NUMBERS = {"k": ("1", "2", "5"), "x": ("0.01", "0.2")}
NAMES = [
    name[:-1] + number if name[-2:] in ("@k", "=x") else name
    for name in kinfold.list("metrics")
    for number in (NUMBERS[name[-1]] if name[-2:] in ("@k", "=x") else ("",))
]
SPACE = ("rho@1", "rho@2", "rho@5", "uniformity", "alignment", "intra", "inter", "density")


def normalized(rows):
    rows = np.asarray(rows, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest == 0, 1.0, largest)
    length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return scaled / np.where(length == 0, 1.0, length)


def draw(mixture, dtype, seed):
    """Rows (ROWS, DIM), labels and coarse labels."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(ROWS) % CLASSES)
    rows = rng.normal(size=(CLASSES, DIM))[labels] + 0.6 * rng.normal(size=(ROWS, DIM))
    directions = normalized(rows)
    kinds = mixture.split()
    for position, i in enumerate(rng.permutation(ROWS)):
        kind = kinds[position % 6] if position % 6 < len(kinds) else kinds[0]
        if kind.startswith("one-"):
            kind = kind[4:] if position == 1 else kinds[0]
        if kind == "unit":
            rows[i] = directions[i]
        elif kind == "zero":
            rows[i] = 0.0
        elif kind != "raw":
            rows[i] = directions[i] * rng.choice(LENGTHS[dtype][kind])
    return rows.astype(dtype), labels, labels % 3


@cache
def problem(mixture, dtype):
    """Draw until no order depends on the rounding of a row.

    Scores that differ, differ by more than that, and so do the distances of a row from its two nearest centers.
    """
    for seed in range(100):
        rows, labels, coarse = draw(mixture, dtype, seed)
        unit = normalized(rows)
        gaps = np.diff(np.sort(unit @ unit.T, axis=1), axis=1)
        gaps = gaps[np.abs(gaps) > 1e-14]  # rows of zeros tie exactly
        clear = gaps.min() > (2e-6 if dtype == np.float32 else 1e-9)
        if clear and all(lloyd(unit[:n], len(set(of))) is not None for n in (36, ROWS) for of in (labels, coarse)):
            return rows, labels, coarse
    raise AssertionError("no unambiguous problem among 100")


def orders(scores, same):
    """Of each query all gallery indices, closest first, equal scores by index, without the query itself."""
    values = []
    for i, row in enumerate(scores):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))
        values.append(np.array([j for j in order if not (same and j == i)]))
    return values


def retrieval_reference(scores, labels, gallery_labels, same):
    values = {}
    for i, order in enumerate(orders(scores, same)):
        relevant = gallery_labels[order] == labels[i]
        n = int(relevant.sum())
        c = n + same
        ranks = 1 + np.flatnonzero(relevant)
        precision = np.arange(1, n + 1) / ranks
        row = {f"recall@{k}": float(ranks[0] <= int(k)) for k in NUMBERS["k"]}
        row |= {f"precision@{k}": (ranks <= int(k)).sum() / int(k) for k in NUMBERS["k"]}
        row |= {
            "r-precision": (ranks <= n).sum() / n,
            "map@r": precision[ranks <= n].sum() / n,
            **{f"map@{k}": precision[ranks <= k].sum() / min(n, k) for k in (1, 2, 5)},
            "map": precision.sum() / n,
            "mrr": 1 / ranks[0],
            "map@c": precision[ranks <= c].sum() / c,
            "map@1000": precision[ranks <= 1000].sum() / c,
            "map@c-printed": (ranks <= c).sum() / c,
            "map@1000-printed": (ranks <= 1000).sum() / 1000,
        }
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return {name: float(np.mean(entries)) for name, entries in values.items()}


def lloyd(rows, count):
    """k-means from the rows that a seed of zero draws, 20 steps; None where a cluster is empty or a row between two."""
    centers = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:count].numpy()]
    for _ in range(20):
        distances = cdist(rows, centers, "sqeuclidean")
        clusters = distances.argmin(axis=1)
        nearest = np.sort(distances, axis=1)
        if len(set(clusters)) < count or (nearest[:, 1] - nearest[:, 0]).min() < 1e-5:
            return None
        centers = np.stack([rows[clusters == c].mean(axis=0) for c in range(count)])
    return clusters


def cluster_reference(unit, labels, suffix):
    clusters = lloyd(unit, len(set(labels)))
    (_, together), (apart, both) = pair_confusion_matrix(labels, clusters)
    return {
        "nmi" + suffix: normalized_mutual_info_score(labels, clusters),
        "ami" + suffix: adjusted_mutual_info_score(labels, clusters),
        "f1" + suffix: 2 * both / (2 * both + together + apart),
    }


def space_reference(unit, labels):
    n = len(unit)
    squared = {(i, j): ((unit[i] - unit[j]) ** 2).sum() for i in range(n) for j in range(i)}
    within = [d for (i, j), d in squared.items() if labels[i] == labels[j]]
    members = [unit[labels == label] for label in np.unique(labels)]
    inside = [np.mean([1 - a @ b for p, a in enumerate(m) for b in m[:p]]) for m in members]
    means = normalized(np.stack([m.sum(axis=0) for m in members]))
    between = [1 - a @ b for p, a in enumerate(means) for b in means[:p]]
    spectrum = np.linalg.svd(unit, compute_uv=False)
    values = {
        "uniformity": math.log(np.mean([math.exp(-2 * d) for d in squared.values()])),
        "alignment": np.mean(within),
        "intra": np.mean(inside),
        "inter": np.mean(between),
        "density": np.mean(inside) / np.mean(between),
    }
    for k in NUMBERS["k"]:
        share = spectrum[int(k) - 1 :] / spectrum[int(k) - 1 :].sum()
        values[f"rho@{k}"] = np.mean(np.log(1 / len(share) / share))
    return values


def pair_reference(scores, positive):
    """Verification of pairs (T,) with scores rounded to float32."""
    scores = scores.astype(np.float32)
    fpr, tpr, _ = roc_curve(positive, scores, drop_intermediate=False)
    crossing = int(np.argmax(fpr >= 1 - tpr))
    low, high = crossing - 1, crossing
    share = (1 - tpr[low] - fpr[low]) / (fpr[high] - fpr[low] + tpr[high] - tpr[low])
    values = {
        "roc-auc": roc_auc_score(positive, scores),
        "pr-auc": average_precision_score(positive, scores),
        "eer": fpr[low] + share * (fpr[high] - fpr[low]),
    }
    values |= {f"tar@far={x}": tpr[fpr <= float(x)].max() for x in NUMBERS["x"]}
    return values | {f"threshold@far={x}": lowest_positive(scores, positive, float(x)) for x in NUMBERS["x"]}


def lowest_positive(scores, positive, far):
    """The lowest score of a positive pair at which at most a share `far` of negative pairs is accepted."""
    allowed = [t for t in scores[positive] if (scores[~positive] >= t).mean() <= far]
    return min(allowed, default=math.nan)


def inconsistency(scores, labels, gallery_labels, same):
    """opis by a loop over thresholds and classes."""
    positive, counted = labels[:, None] == gallery_labels, np.eye(*scores.shape) * same == 0
    scores = scores.astype(np.float32).astype(np.float64)
    ends = [lowest_positive(scores[counted], positive[counted], far) for far in (0.1, 0.01)]
    variances = []
    for number in range(33):
        threshold = ends[0] + (ends[1] - ends[0]) * number / 32
        utilities = []
        for label in set(labels) & set(gallery_labels):
            of_class = (labels == label)[:, None] & counted
            accepted = (scores >= threshold - 1e-15)[of_class & positive].mean()
            rejected = (scores < threshold - 1e-15)[of_class & ~positive].mean()
            utilities += [2 * accepted * rejected / (accepted + rejected) if accepted + rejected else 0.0]
        variances += [np.var(utilities)]
    return np.mean(variances)


def open_set_reference(scores, labels, gallery_labels, same):
    """Identification by a loop over queries; within one set the class of each query is once left out."""
    scores, known, correct, unknown = scores.astype(np.float32), [], [], []
    for i, row in enumerate(scores):
        use = np.arange(len(row)) != i if same else np.ones(len(row), bool)
        nearest = max(np.flatnonzero(use), key=lambda j: (row[j], -j))
        if labels[i] in gallery_labels[use]:
            known += [row[nearest]]
            correct += [gallery_labels[nearest] == labels[i]]
        if same or labels[i] not in gallery_labels:
            unknown += [row[gallery_labels != labels[i]].max()]
    if not unknown:
        return {"auroc-open": math.nan} | {f"dir@far={x}": math.nan for x in NUMBERS["x"]}
    values = {"auroc-open": np.mean([(k > u) + (k == u) / 2 for k in known for u in unknown])}
    for x in NUMBERS["x"]:
        candidates = [-np.inf, *np.nextafter(np.array(unknown), np.float32(np.inf))]
        threshold = min(t for t in candidates if np.mean([u >= t for u in unknown]) <= float(x))
        values[f"dir@far={x}"] = np.mean([right and k >= threshold for k, right in zip(known, correct, strict=True)])
    return values


def split(mixture, dtype, same):
    rows, labels, coarse = problem(mixture, dtype)
    if same:
        return (rows, labels, coarse), (rows, labels)
    return (rows[:36], labels[:36], coarse[:36]), (rows[20:], labels[20:])


def reference(queries, gallery, same):
    (rows, labels, coarse), (others, gallery_labels) = queries, gallery
    unit, gallery_unit = normalized(rows), normalized(others)
    scores = unit @ gallery_unit.T
    values = retrieval_reference(scores, labels, gallery_labels, same)
    values |= cluster_reference(unit, labels, "") | cluster_reference(unit, coarse, "-coarse")
    values |= space_reference(unit, labels)
    values |= {"opis": inconsistency(scores, labels, gallery_labels, same)}
    values |= open_set_reference(scores, labels, gallery_labels, same)
    counted = np.tril(np.ones_like(scores, dtype=bool), -1) if same else np.ones_like(scores, dtype=bool)
    return values | pair_reference(scores[counted], (labels[:, None] == gallery_labels)[counted])


@pytest.mark.parametrize("same", [True, False], ids=["one set", "gallery"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_every_metric_equals_numpy(mixture, dtype, same):
    queries, gallery = split(mixture, dtype, same)
    (rows, labels, coarse), others = queries, () if same else gallery
    values = kinfold.metrics.evaluate(rows, labels, *others, metrics=NAMES, coarse_labels=coarse)
    expected = reference(queries, gallery, same)
    assert set(values) == set(expected), "the reference must know every registered metric"
    for name, value in values.items():
        # pairs of almost one score may be ordered by the rounding of rows; metrics of ranks are unambiguous
        close = 2e-4 if name in ("roc-auc", "pr-auc", "eer", "auroc-open", "opis") else 1e-5 if name in SPACE else 1e-12
        close = 1e-6 if name.startswith("threshold") else close  # scores are rounded to float32
        assert value == pytest.approx(expected[name], abs=close, nan_ok=True), name


@pytest.mark.parametrize("same", [True, False], ids=["one set", "gallery"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_neighbors_and_curves_equal_numpy(mixture, dtype, same):
    (rows, labels, _), (others, gallery_labels) = split(mixture, dtype, same)
    scores = normalized(rows) @ normalized(others).T
    order = orders(scores, same)
    similarities, indices = kinfold.metrics.neighbors(rows, None if same else others, k=30)
    expected = np.stack([entry[:30] for entry in order])
    assert np.array_equal(indices.numpy(), expected)
    close = 1e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(similarities.numpy(), np.take_along_axis(scores, expected, axis=1), rtol=0, atol=close)
    assert similarities.max() < 1 + close

    gallery = () if same else (others, gallery_labels)
    curve = kinfold.metrics.verify(rows, labels, *gallery)
    positive = labels[:, None] == gallery_labels
    counted = np.tril(np.ones_like(positive), -1) if same else np.ones_like(positive)
    assert (curve.positives, curve.negatives) == (positive[counted].sum(), (~positive)[counted].sum())
    assert float(curve.thresholds[0]) == pytest.approx(scores[counted & positive].max(), abs=1e-6)
    curves = kinfold.metrics.query_curves(rows, labels, *gallery)
    areas = []
    for i, entry in enumerate(order):
        relevant = positive[i, entry]  # in the order of their ranks
        above = np.cumsum(~relevant)[relevant]
        areas += [1 - above.mean() / (~relevant).sum()]
    assert curves.roc_auc == pytest.approx(np.mean(areas), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_is_normalized_independently_of_other_rows(dtype):
    rows = torch.from_numpy(problem("unit raw zero tiny huge", dtype)[0])
    together = normalize_rows(rows)
    assert torch.equal(together, torch.cat([normalize_rows(row[None]) for row in rows]))
    assert torch.equal(together, normalize_rows(rows.T.contiguous().T))
    close = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(together.numpy(), normalized(rows.numpy()), rtol=0, atol=close)
    assert torch.equal(together, normalize_rows(together)), "normalizing twice changes nothing"


@pytest.mark.parametrize("distance", ["dot", "euclidean"])
@pytest.mark.parametrize("lengths", [(1.0, 1e-25), (1e18, 1.0, 1e-20), (1e30, 1e-8), (1e-20, 1e-42)])
def test_short_rows_beside_long_ones_keep_their_order(lengths, distance):
    """Scores of raw float32 rows are float64: a row 45 orders of magnitude shorter than another still has one."""
    rng = np.random.default_rng(3)
    rows = (rng.normal(size=(48, 5)) * np.resize(lengths, 48)[:, None]).astype(np.float32)
    wide = rows.astype(np.float64)
    for queries in (rows, rows[1 :: len(lengths)][:8]):
        left = queries.astype(np.float64)
        scores = left @ wide.T if distance == "dot" else -(((left[:, None] - wide) ** 2).sum(axis=2))
        _, indices = kinfold.metrics.neighbors(queries, rows, k=20, distance=distance)
        assert np.array_equal(indices.numpy(), np.stack(orders(scores, same=False))[:, :20])
        values = kinfold.metrics.evaluate(
            queries, np.arange(len(queries)) % 4, rows, np.arange(48) % 4, metrics=["map"], distance=distance
        )
        expected = retrieval_reference(scores, np.arange(len(queries)) % 4, np.arange(48) % 4, False)
        assert values["map"] == pytest.approx(expected["map"], abs=1e-12)


@pytest.mark.parametrize("distance", ["dot", "euclidean"])
@pytest.mark.parametrize("length", [1e-30, 1e-38, 1e-40, 1e-42, 1e-44])
def test_queries_far_shorter_than_the_gallery_are_ranked_by_their_scores(length, distance):
    """Products of such rows vanish in float32."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(240, 16)).astype(np.float32)
    queries = (length * rng.normal(size=(40, 16))).astype(np.float32)
    left, right, labels = queries.astype(np.float64), rows.astype(np.float64), np.arange(240) % 12
    scores = left @ right.T if distance == "dot" else -(((left[:, None] - right) ** 2).sum(axis=2))
    expected = retrieval_reference(scores, labels[:40], labels, False)
    values = kinfold.metrics.evaluate(queries, labels[:40], rows, labels, metrics=["map", "map@r"], distance=distance)
    assert values == pytest.approx({name: expected[name] for name in values}, abs=1e-12)
    _, indices = kinfold.metrics.neighbors(queries, rows, k=20, distance=distance)
    assert np.array_equal(indices.numpy(), np.stack(orders(scores, same=False))[:, :20])
