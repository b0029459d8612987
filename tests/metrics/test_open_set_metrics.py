"""Metrics of open sets and operating points equal loops over pairs, in float64 and with known answers."""

import math

import numpy as np
import pytest
import torch

from kinfold.metrics import evaluate, verification_curve, verify
from tests.metrics.brute_force import scores
from tests.metrics.embedding_sets import make_embeddings

NAMES = ["dir@far=0", "dir@far=0.05", "dir@far=0.3", "dir@far=1", "auroc-open", "recall@1"]


def identify(score_matrix, labels, gallery_labels, same):
    """(nearest score, nearest is of the class) of known queries, and the nearest scores of unknown ones, by loops."""
    known, unknown = [], []
    for i, row in enumerate(score_matrix):
        candidates = [j for j in range(len(row)) if not (same and i == j)]
        exact = max(candidates, key=lambda j: (row[j], -j))
        if any(gallery_labels[j] == labels[i] for j in candidates):
            known.append((np.float32(row[exact]), gallery_labels[exact] == labels[i]))
        others = [np.float32(row[j]) for j in candidates if gallery_labels[j] != labels[i]]
        if others and (same or len(others) == len(candidates)):
            unknown.append(max(others))
    return known, unknown


def expect(known, unknown):
    values = {"recall@1": np.mean([correct for _, correct in known])}
    values["auroc-open"] = np.mean([(k > u) + (k == u) / 2 for k, _ in known for u in unknown])
    for far in (0, 0.05, 0.3, 1):
        thresholds = [-math.inf, *np.nextafter(np.array(unknown), np.float32(math.inf)).tolist()]
        keeps = [t for t in thresholds if np.mean([u >= t for u in unknown]) <= far]
        values[f"dir@far={far}"] = np.mean([correct and k >= min(keeps) for k, correct in known])
    return values


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kind", ["clustered", "duplicated", "tied", "zeros"])
def test_one_set_leaves_each_class_out_once(kind, distance, monkeypatch):
    monkeypatch.setattr(verification_curve, "_ROWS_PER_BLOCK", 37)
    monkeypatch.setattr(verification_curve, "_COLUMNS_PER_BLOCK", 50)
    x, labels = make_embeddings(kind, n=120)
    labels[:3] = [100, 101, 102]  # alone in their classes: never known
    expected = expect(*identify(scores(x.numpy(), x.numpy(), distance), labels, labels, same=True))
    values = evaluate(x, labels, metrics=NAMES, distance=distance)
    assert values == {name: pytest.approx(value, abs=1e-12) for name, value in expected.items()}
    assert values["dir@far=1"] == values["recall@1"]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("kind", ["clustered", "tied"])
def test_queries_of_classes_without_a_gallery_item_are_unknown(kind, distance):
    x, labels = make_embeddings(kind, n=200)
    enrolled = labels[80:] < 12
    gallery, gallery_labels = x[80:][enrolled], labels[80:][enrolled]
    score_matrix = scores(x[:80].numpy(), gallery.numpy(), distance)
    expected = expect(*identify(score_matrix, labels[:80], gallery_labels, same=False))
    values = evaluate(x[:80], labels[:80], gallery, gallery_labels, metrics=NAMES, distance=distance)
    assert values == {name: pytest.approx(value, abs=1e-12) for name, value in expected.items()}


def test_more_false_accepts_never_identify_less():
    x, labels = make_embeddings("clustered", n=300)
    rates = [evaluate(x, labels, metrics=[f"dir@far={far}"])[f"dir@far={far}"] for far in (0, 0.01, 0.1, 0.5, 1)]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
def test_the_threshold_belongs_to_the_true_accept_rate(distance):
    x, labels = make_embeddings("clustered", n=150)
    values = evaluate(x, labels, metrics=["threshold@far=0.05", "tar@far=0.05"], distance=distance)
    upper = np.triu_indices(150, 1)
    pair_scores = scores(x.numpy(), x.numpy(), distance).astype(np.float32)[upper]
    pair_scores = np.sqrt(-pair_scores) if distance == "euclidean" else pair_scores
    positive = (labels[:, None] == labels)[upper]
    threshold = values["threshold@far=0.05"]
    slack = 1e-6 * abs(threshold)
    accepted = pair_scores <= threshold + slack if distance == "euclidean" else pair_scores >= threshold - slack
    assert accepted[positive].mean() == pytest.approx(values["tar@far=0.05"], abs=1e-12)
    assert accepted[~positive].mean() <= 0.05
    assert np.abs(pair_scores[positive] - threshold).min() <= slack  # it is the score of a positive pair


def test_operating_points_of_alike_classes_are_consistent():
    labels = torch.arange(40) // 4
    alike = torch.eye(10)[labels]
    assert evaluate(alike, labels, metrics=["opis"])["opis"] == 0.0
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(40, 10, generator=generator)
    even, uneven = alike + 0.3 * noise, alike + noise * torch.where(labels < 5, 0.02, 0.6)[:, None]
    values = [evaluate(x, labels, metrics=["opis"])["opis"] for x in (even, uneven)]
    assert values[1] > 3 * values[0] > 0.0


@pytest.mark.parametrize("distance", ["dot", "euclidean"])
def test_inconsistency_equals_a_loop(distance):
    x, labels = make_embeddings("clustered", n=90, classes=9)
    score_matrix = scores(x.numpy(), x.numpy(), distance).astype(np.float32).astype(np.float64)
    score_matrix = -np.sqrt(-score_matrix) if distance == "euclidean" else score_matrix
    curve = verify(x, labels, distance=distance)
    sign = -1 if distance == "euclidean" else 1
    ends = [sign * curve.threshold_at_far(far) for far in (0.1, 0.01)]
    not_self = ~np.eye(90, dtype=bool)
    variances = []
    for t in np.linspace(ends[0], ends[1], 33):
        utilities = []
        for label in range(9):
            rows = (labels == label)[:, None] & not_self
            same = labels[:, None] == labels
            tar = (score_matrix >= t - 1e-12)[rows & same].mean()
            tnr = (score_matrix < t - 1e-12)[rows & ~same].mean()
            utilities.append(2 * tar * tnr / (tar + tnr))
        variances.append(np.var(utilities))
    assert evaluate(x, labels, metrics=["opis"], distance=distance)["opis"] == pytest.approx(
        np.mean(variances), abs=1e-9
    )


def test_undefined_values_are_nan():
    names = ["dir@far=0.1", "auroc-open", "opis", "threshold@far=0.1"]
    one_class = evaluate(torch.randn(6, 3), [1] * 6, metrics=names)
    assert all(math.isnan(value) for value in one_class.values())
    x, labels = make_embeddings("clustered", n=60)
    closed = evaluate(
        x[:30], labels[:30] % 3, x[30:], labels[30:] % 3, metrics=["dir@far=0.1", "auroc-open", "recall@1"]
    )
    assert math.isnan(closed["dir@far=0.1"])  # no query is of a class outside the gallery
    assert math.isnan(closed["auroc-open"])
    with pytest.raises(ValueError, match="between 0 and 1"):
        evaluate(x, labels, metrics=["dir@far=1.5"])
