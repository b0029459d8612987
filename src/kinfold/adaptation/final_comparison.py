"""The input and the adapted space on the test classes: the only time that these are used."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kinfold.data import Dataset, Rows
from kinfold.embedding.kept import embed_items
from kinfold.metrics import Distance, examine
from kinfold.metrics.intervals import bootstrap
from kinfold.training import Run


def compare_on_test(
    run: Run, features: Dataset, items: Dataset, metrics: Sequence[str], distance: Distance
) -> dict[str, dict[str, float]]:
    """Measure the input and the run on the test classes.

    Args:
        run: The finished run.
        features: The input space, with or without test classes.
        items: The same items as the run embeds them: these features, or images.
        metrics: What is measured; retrieval metrics, which have a value for each query.
        distance: How embeddings are compared.

    Returns:
        Metric -> input, adapted, gain, and the ends of its 95 % bootstrap interval over classes; empty where there are
        no test classes.
    """
    if not (features.split == "test").any():
        return {}
    test = features.subset("test")
    assert isinstance(test.items, Rows)
    rows = torch.as_tensor(test.items.array()).float()
    spaces = [rows, embed_items(run, items.subset("test"))]
    results = [examine(space, test.labels, metrics=metrics, distance=distance) for space in spaces]
    gains: dict[str, Tensor] = {
        name: results[1].per_query[name] - results[0].per_query[name]
        for name in metrics
        if name in results[0].per_query
    }
    intervals = bootstrap(gains, results[0].query_class, "classes")
    return {
        name: {
            "input": results[0].values[name],
            "adapted": results[1].values[name],
            "gain": results[1].values[name] - results[0].values[name],
            "low": intervals[name][0],
            "high": intervals[name][1],
        }
        for name in gains
    }
