"""What the figures about a space are drawn from: curves over pairs and ranks, the way of training, a plane."""

from pathlib import Path
from typing import Any

import numpy as np

from kinfold import metrics
from kinfold.experiments.repeat import Repeat
from kinfold.files.atomic import write_atomic
from kinfold.tsne import compute_tsne

RANKS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100)


def collect_figure_data(made: Repeat, path: Path, plane: bool = False) -> dict[str, float]:
    """Write the arrays of a repeat to an .npz file, and give the areas under its curves over all pairs.

    false_positives, true_positives; pair_recall, pair_precision: of all pairs in one pool. far, tar; query_recall,
    query_precision: the mean over queries. k, recall: recall@k. steps, split and METRIC along training. plane: t-SNE of
    the test items, with their labels; where asked for.
    """
    tested = made.data("test")
    rows = made.embed(tested)
    distance = made.distance
    pooled = metrics.verify(rows, tested.labels, distance=distance)
    each = metrics.query_curves(rows, tested.labels, distance=distance)
    (fpr, tpr), (recall, precision) = pooled.roc(), pooled.precision_recall()
    ks = [k for k in RANKS if k < len(tested.labels)]
    at = metrics.evaluate(rows, tested.labels, metrics=[f"recall@{k}" for k in ks], distance=distance)
    arrays: dict[str, Any] = {
        "false_positives": fpr.numpy(),
        "true_positives": tpr.numpy(),
        "pair_recall": recall.numpy(),
        "pair_precision": precision.numpy(),
        "far": each.far.numpy(),
        "tar": each.tar.numpy(),
        "query_recall": each.recall.numpy(),
        "query_precision": each.precision.numpy(),
        "k": np.array(ks),
        "recall": np.array([at[f"recall@{k}"] for k in ks]),
        **_along(made),
    }
    if plane:
        arrays |= {"plane": compute_tsne(rows), "labels": tested.labels.numpy()}
    write_atomic(path, lambda file: np.savez_compressed(file, **arrays))
    return {"roc-auc": pooled.roc_auc(), "pr-auc": pooled.pr_auc()}


def _along(made: Repeat) -> dict[str, np.ndarray]:
    """Every metric at every evaluation, of the first fold; the split says on which classes."""
    run = made.runs[0]
    events = [event for event in run.events if event["event"] == "evaluation"]
    if not events:
        return {}
    names = [name for name in run.config.evaluation.metrics if name in events[0]]
    return {
        "steps": np.array([event["step"] for event in events]),
        "split": np.array(events[0]["split"]),
        **{name: np.array([event[name] for event in events], dtype=np.float64) for name in names},
    }
