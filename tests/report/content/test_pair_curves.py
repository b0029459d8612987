"""Curves and histograms over pairs, against the same computed naively."""

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_curve, roc_curve

from kinfold.report.content import pair_curves
from kinfold.report.content.pair_curves import PairPool, compute_histogram
from kinfold.report.content.space_measurements import measure_space
from tests.report.content.naive import COUNT, pairs_by_hand, rows_and_data


def test_curves_are_points_of_the_full_curves():
    rows, data = rows_and_data()
    curves = measure_space(rows, data, "cosine", points=10)["curves"]
    scores, positive = pairs_by_hand(rows, data)
    scores = scores.astype(np.float32)
    far, tar, _ = roc_curve(positive, scores, drop_intermediate=False)
    precision, recall, _ = precision_recall_curve(positive, scores)
    roc = curves["roc"]
    assert (roc["x"][0], roc["x"][-1], roc["y"][-1]) == (0.0, 1.0, 1.0)
    for x, y in zip(roc["x"], roc["y"], strict=True):
        assert np.min(np.abs(far - x) + np.abs(tar - y)) < 2e-4
    for x, y in zip(curves["precision-recall"]["x"], curves["precision-recall"]["y"], strict=True):
        assert np.min(np.abs(recall - x) + np.abs(precision - y)) < 2e-4
    assert max(map(len, (roc["x"], curves["precision-recall"]["x"], curves["recall@k"]["x"]))) <= 400
    assert curves["recall@k"]["y"] == sorted(curves["recall@k"]["y"])
    assert curves["recall@k"]["x"][-1] <= COUNT - 1


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_the_histogram_counts_every_pair_once(distance):
    rows, data = rows_and_data()
    everything = torch.ones(COUNT, dtype=torch.bool)
    histogram = compute_histogram(PairPool.create(rows, data.labels, everything, everything), distance)
    scores, positive = pairs_by_hand(rows, data, distance)
    edges = np.array(histogram["edges"])
    for name, mask in (("positives", positive), ("negatives", ~positive)):
        assert sum(histogram[name]) == pytest.approx(1.0, abs=1e-3)
        # scores on an edge may fall to either side
        expected = np.cumsum(np.histogram(scores[mask], edges)[0] / mask.sum())
        assert np.cumsum(histogram[name]) == pytest.approx(expected, abs=2.5 / mask.sum() + 1e-3)


def test_pairs_of_very_many_items_are_sampled(monkeypatch):
    monkeypatch.setattr(pair_curves, "MAX_ITEMS", 50)
    monkeypatch.setattr(pair_curves, "MAX_QUERIES", 12)
    rows, data = rows_and_data()
    measurements = measure_space(rows, data, "cosine", points=10)
    assert measurements["pairs"] == "12 items against 78 others"
    assert measurements["histogram"]["positives"]
    assert measurements["count"] == COUNT
