"""Arrays for figures of an embedding space: curves over pairs and ranks, metrics along training, t-SNE."""

from pathlib import Path
from typing import Any

import numpy as np

from kinfold import metrics
from kinfold.experiments.repeat import Repeat
from kinfold.files.atomic import write_atomic
from kinfold.tsne import compute_tsne

RANKS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100)


def collect_figure_data(repeat: Repeat, path: Path, plane: bool = False) -> dict[str, float]:
    """Write the arrays of a repeat to an .npz file.

    false_positives, true_positives, pair_recall, pair_precision: curves over all pairs. far, tar, query_recall,
    query_precision: curves averaged over queries. k, recall: recall@k. steps, split, METRIC: metrics along training.
    plane, labels: t-SNE of the test items.

    Args:
        repeat: A repeat whose folds are all trained.
        path: The file to write.
        plane: Whether to compute t-SNE.

    Returns:
        Areas under the curves over all pairs: "roc-auc" and "pr-auc".
    """
    dataset = repeat.data("test")
    embeddings, labels, distance = repeat.embed(dataset), dataset.labels, repeat.distance
    verification = metrics.verify(embeddings, labels, distance=distance)
    curves = metrics.query_curves(embeddings, labels, distance=distance)
    (fpr, tpr), (recall, precision) = verification.roc(), verification.precision_recall()
    ks = [k for k in RANKS if k < len(labels)]
    recalls = metrics.evaluate(embeddings, labels, metrics=[f"recall@{k}" for k in ks], distance=distance)
    arrays: dict[str, Any] = {
        "false_positives": fpr.numpy(),
        "true_positives": tpr.numpy(),
        "pair_recall": recall.numpy(),
        "pair_precision": precision.numpy(),
        "far": curves.far.numpy(),
        "tar": curves.tar.numpy(),
        "query_recall": curves.recall.numpy(),
        "query_precision": curves.precision.numpy(),
        "k": np.array(ks),
        "recall": np.array([recalls[f"recall@{k}"] for k in ks]),
        **_collect_training_metrics(repeat),
    }
    if plane:
        arrays |= {"plane": compute_tsne(embeddings), "labels": labels.numpy()}
    write_atomic(path, lambda file: np.savez_compressed(file, **arrays))
    return {"roc-auc": verification.roc_auc(), "pr-auc": verification.pr_auc()}


def _collect_training_metrics(repeat: Repeat) -> dict[str, np.ndarray]:
    """Every metric at every evaluation of the first fold, and the split that it was measured on."""
    run = repeat.runs[0]
    events = [event for event in run.events if event["event"] == "evaluation"]
    if not events:
        return {}
    names = [name for name in run.config.evaluation.metrics if name in events[0]]
    return {
        "steps": np.array([event["step"] for event in events]),
        "split": np.array(events[0]["split"]),
        **{name: np.array([event[name] for event in events], dtype=np.float64) for name in names},
    }
