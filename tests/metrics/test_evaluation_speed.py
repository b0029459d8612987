"""What `evaluate` costs next to a search for the nearest neighbors."""

import time

import pytest
import torch

from kinfold.metrics import evaluate, neighbors


def cpu_seconds(work):
    """Return the least of three measurements."""
    durations = []
    for _ in range(3):
        begin = time.process_time()
        work()
        durations.append(time.process_time() - begin)
    return min(durations)


@pytest.mark.parametrize("query_count", [None, 500])
def test_recall_with_large_classes_costs_little_more_than_the_nearest_neighbors(query_count):
    """With 500 relevant items for each query. A factor of 10 allows for a busy machine."""
    x = torch.randn(4000, 64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(4000) % 8
    queries, query_labels = x[:query_count], labels[:query_count]
    gallery, gallery_labels = (None, None) if query_count is None else (x[query_count:], labels[query_count:])
    search = cpu_seconds(lambda: neighbors(queries, gallery, k=1))
    recall = cpu_seconds(lambda: evaluate(queries, query_labels, gallery, gallery_labels, metrics=["recall@1"]))
    assert recall < 10 * search + 0.02
