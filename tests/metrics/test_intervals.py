"""Bootstrap intervals of means over queries and over classes."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from kinfold.metrics import examine
from kinfold.metrics.intervals import bootstrap


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_intervals_are_those_of_a_mean(level):
    """Of many values the mean is nearly normal, and its interval known."""
    values = torch.randn(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    interval = bootstrap({"m": values}, torch.zeros(4000, dtype=torch.int64), "queries", level)["m"]
    half = scipy.stats.norm.ppf((1 + level) / 2) * values.std().item() / math.sqrt(4000)
    assert interval == pytest.approx((values.mean().item() - half, values.mean().item() + half), abs=0.06 * half)


def test_intervals_cover_and_those_over_classes_are_wider():
    # whole classes are easy or hard, so that queries of one class say little more than one of them
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 20)
    noise = np.where(np.arange(30) % 2 == 0, 0.1, 3.0)[labels][:, None]
    x = torch.tensor(rng.normal(size=(30, 16))[labels] + rng.normal(size=(600, 16)) * noise)
    queries = examine(x, labels, metrics=["recall@1"], intervals="queries")
    classes = examine(x, labels, metrics=["recall@1"], intervals="classes")
    for evaluation in (queries, classes):
        low, high = evaluation.intervals["recall@1"]
        assert low < evaluation.values["recall@1"] < high
    width = [
        evaluation.intervals["recall@1"][1] - evaluation.intervals["recall@1"][0] for evaluation in (queries, classes)
    ]
    per_query = queries.per_query["recall@1"]
    assert width[0] == pytest.approx(2 * 1.96 * float(per_query.std()) / 600**0.5, rel=0.1)
    means = torch.tensor(list(classes.per_class("recall@1").values()))
    assert width[1] == pytest.approx(2 * 1.96 * float(means.std()) / 30**0.5, rel=0.15)
    assert width[1] > 1.5 * width[0]
    again = examine(x, labels, metrics=["recall@1"], intervals="classes")
    assert again.intervals == classes.intervals
