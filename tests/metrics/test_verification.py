"""Curves over all pairs equal those of scikit-learn on the full list of pairs, ties included."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from kinfold.metrics import query_curves, verification_curve, verify
from tests.metrics.brute_force import scores
from tests.metrics.embedding_sets import make_embeddings


def pairs(x, labels, gallery, gallery_labels, distance):
    score_matrix = scores(x.numpy(), (x if gallery is None else gallery).numpy(), distance).astype(np.float32)
    is_positive = np.asarray(labels)[:, None] == np.asarray(labels if gallery is None else gallery_labels)
    if gallery is None:
        upper = np.triu_indices(len(x), 1)
        return score_matrix[upper], is_positive[upper]
    return score_matrix.ravel(), is_positive.ravel()


def assert_equals_scikit_learn(curve, score, is_positive):
    assert curve.roc_auc() == pytest.approx(roc_auc_score(is_positive, score), abs=1e-9)
    assert curve.pr_auc() == pytest.approx(average_precision_score(is_positive, score), abs=1e-9)
    fpr, tpr, _ = roc_curve(is_positive, score, drop_intermediate=False)
    xs, ys = (part.numpy() for part in curve.roc())
    # scikit-learn has a point for every score, our polyline only its corners: each of their points is on it
    for x, y in zip(fpr[::5], tpr[::5], strict=True):
        on = (np.abs(xs - x) < 1e-12) & (np.abs(ys - y) < 1e-12)
        between = (xs[:-1] <= x + 1e-12) & (x <= xs[1:] + 1e-12) & (ys[:-1] - 1e-12 <= y) & (y <= ys[1:] + 1e-12)
        flat = (np.abs(ys[:-1] - y) < 1e-12) & (np.abs(ys[1:] - y) < 1e-12)
        assert on.any() or (between & flat).any()
    assert np.trapezoid(ys, xs) == pytest.approx(curve.roc_auc(), abs=1e-12)
    precision, recall, _ = precision_recall_curve(is_positive, score)
    ours_recall, ours_precision = (part.numpy() for part in curve.precision_recall())
    # at each recall that a positive reaches, the highest threshold that reaches it
    for r, p in zip(ours_recall[::7], ours_precision[::7], strict=True):
        assert precision[np.isclose(recall, r, atol=1e-12)].max() == pytest.approx(p, abs=1e-12)
    for far in (0.0, 1e-3, 0.01, 0.1, 0.5, 1.0):
        assert curve.tar_at_far(far) == pytest.approx(tpr[fpr <= far].max(), abs=1e-12)
    gap = fpr - (1 - tpr)
    crossing = int(np.argmax(gap >= 0))
    share = -gap[crossing - 1] / (gap[crossing] - gap[crossing - 1])
    assert curve.equal_error_rate() == pytest.approx(
        fpr[crossing - 1] + share * (fpr[crossing] - fpr[crossing - 1]), abs=1e-12
    )


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kind", ["random", "clustered", "duplicated", "tied"])
def test_the_curve_of_one_set_equals_scikit_learn(kind, distance, monkeypatch):
    monkeypatch.setattr(verification_curve, "_ROWS_PER_BLOCK", 37)
    monkeypatch.setattr(verification_curve, "_COLUMNS_PER_BLOCK", 64)
    x, labels = make_embeddings(kind)
    assert_equals_scikit_learn(verify(x, labels, distance=distance), *pairs(x, labels, None, None, distance))


@pytest.mark.parametrize("kind", ["clustered", "tied"])
def test_the_curve_of_queries_and_gallery_equals_scikit_learn(kind):
    x, labels = make_embeddings(kind)
    curve = verify(x[:60], labels[:60], x[60:], labels[60:])
    assert_equals_scikit_learn(curve, *pairs(x[:60], labels[:60], x[60:], labels[60:], "cosine"))


def test_thresholds_are_distances():
    x, labels = make_embeddings("clustered")
    curve = verify(x, labels, distance="euclidean")
    assert float(curve.thresholds.min()) >= 0.0
    assert bool((curve.thresholds.diff() > 0).all())  # from the closest pair on


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_bins_are_within_their_stated_bound(distance, monkeypatch):
    monkeypatch.setattr(verification_curve, "_BINS", 4096)
    x, labels = make_embeddings("clustered", n=500)
    exact, binned = verify(x, labels, distance=distance), verify(x, labels, distance=distance, max_exact_positives=10)
    assert exact.exact
    assert not binned.exact
    assert exact.max_area_error == 0.0
    assert 0.0 < binned.max_area_error < 0.01
    assert abs(binned.roc_auc() - exact.roc_auc()) <= binned.max_area_error
    assert (binned.positives, binned.negatives) == (exact.positives, exact.negatives)
    score, is_positive = pairs(x, labels, None, None, distance)
    at = len(binned.thresholds) // 2
    edge = float(binned.thresholds[at]) if distance == "cosine" else -(float(binned.thresholds[at]) ** 2)
    assert float(binned.true_accepts[at]) == pytest.approx((is_positive & (score >= edge)).sum(), abs=2)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_query_curves_are_means_over_queries(distance):
    x, labels = make_embeddings("clustered", n=150, classes=10)
    curves = query_curves(x, labels, distance=distance, points=11)
    score_matrix = scores(x.numpy(), x.numpy(), distance)
    areas, average, tar, precision = [], [], [], []
    for i in range(150):
        not_self = np.arange(150) != i
        is_positive, score = (labels == labels[i])[not_self], score_matrix[i][not_self]
        areas.append(roc_auc_score(is_positive, score))
        average.append(average_precision_score(is_positive, score))
        fpr, tpr, _ = roc_curve(is_positive, score, drop_intermediate=False)
        tar.append([tpr[fpr <= far + 1e-12].max() for far in np.linspace(0, 1, 11)])
        p, r, _ = precision_recall_curve(is_positive, score)
        precision.append([p[:-1][r[:-1] >= level - 1e-9].max() for level in np.linspace(0, 1, 11)])
    assert curves.queries == 150
    assert curves.roc_auc == pytest.approx(np.mean(areas), abs=1e-9)
    assert curves.pr_auc == pytest.approx(np.mean(average), abs=1e-9)
    assert curves.tar.numpy() == pytest.approx(np.mean(tar, axis=0), abs=1e-9)
    assert curves.precision.numpy() == pytest.approx(np.mean(precision, axis=0), abs=1e-9)


def test_without_a_positive_pair_areas_are_undefined():
    curve = verify(torch.eye(4), [0, 1, 2, 3])
    assert curve.positives == 0.0
    assert curve.negatives == 6.0
    assert np.isnan(curve.roc_auc())
