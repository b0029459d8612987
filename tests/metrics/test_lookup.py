"""Metrics are found by name, and mistakes get a hint."""

import pytest
import torch

from kinfold.metrics import evaluate
from kinfold.metrics.lookup import find_metric
from tests.metrics.embedding_sets import make_embeddings


def test_an_unknown_name_or_number_is_refused_with_a_hint():
    x, labels = make_embeddings("random", n=20)
    for name, hint in [
        ("recal@1", "recall@1"),
        ("recall@0", "at least 1"),
        ("recall@k", "recall@"),
        ("recall@1.5", "an integer"),
        ("map@0", "at least 1"),
        ("tar@far=2", "between 0 and 1"),
    ]:
        with pytest.raises(ValueError, match=hint):
            evaluate(x, labels, metrics=[name])
    with pytest.raises(ValueError, match="list of names"):
        evaluate(x, labels, metrics="recall@1")


def test_a_metric_that_is_not_a_name_is_refused_with_a_hint():
    with pytest.raises(ValueError, match=r"given by their names, got RetrievalMetric.*kinfold\.register"):
        evaluate(torch.eye(4), torch.tensor([0, 0, 1, 1]), metrics=[find_metric("recall@1")])  # type: ignore[list-item]
