"""Metrics are found by name, and mistakes get a hint."""

import pytest

from kinfold.metrics import evaluate
from tests.metrics.embedding_sets import make_embeddings


def test_an_unknown_name_or_number_is_refused_with_a_hint():
    x, labels = make_embeddings("random", n=20)
    for name, hint in [
        ("recal@1", "recall@1"),
        ("recall@0", "at least 1"),
        ("recall@k", "recall@"),
        ("recall@1.5", "an integer"),
        ("map@5", "kinfold.list"),
        ("tar@far=2", "between 0 and 1"),
    ]:
        with pytest.raises(ValueError, match=hint):
            evaluate(x, labels, metrics=[name])
    with pytest.raises(ValueError, match="list of names"):
        evaluate(x, labels, metrics="recall@1")
