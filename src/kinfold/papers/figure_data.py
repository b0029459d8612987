"""Arrays for figures of an embedding space: curves over pairs and ranks, metrics along training, spectra, t-SNE."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from kinfold import metrics
from kinfold.experiments.repeat import Repeat
from kinfold.files.atomic import write_atomic
from kinfold.files.checksums import digest_parts
from kinfold.pairs import normalize
from kinfold.papers.map_pictures import choose_pictures
from kinfold.papers.toy import ToyPicture
from kinfold.tsne import compute_tsne

CLASS_SPECTRUM = 35  # singular values of a class, as in the figure of Roth et al.
MAX_ITEMS = 5_000  # of a map: t-SNE of more takes long, and a figure does not show more
MAPS = ("t-sne", "map with pictures")  # columns of a table that are maps
AREAS = ("roc-auc", "pr-auc")
RANKS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100)


def collect_figure_data(repeat: Repeat, path: Path, columns: Sequence[str] = ()) -> dict[str, float]:
    """Write the arrays of a repeat to an .npz file.

    false_positives, true_positives, pair_recall, pair_precision: curves over all pairs. far, tar, query_recall,
    query_precision: curves averaged over queries. k, recall: recall@k. steps, split, METRIC: metrics along training.
    plane, labels: t-SNE of the test items. pictures, picture_items: small pictures of some of them, where items are
    pictures. zooms: regions of the plane. class_spectrum, spectrum: singular values on the training classes, averaged
    over classes and of all items. made_from: checksum of the repeat and the columns. A file that was made from the same
    repeat for the same columns is kept.

    Args:
        repeat: A repeat whose folds are all trained.
        path: The file to write.
        columns: Columns of the published table. "t-sne" and "map with pictures" ask for a map, "class spectrum" for
            spectra.

    Returns:
        Areas under the curves over all pairs: "roc-auc" and "pr-auc".
    """
    made_from = digest_parts([*repeat.compute_run_checksums(), *columns])
    kept = _read_areas(path, made_from)
    if kept is not None:
        return kept
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
    if {*columns} & {*MAPS}:
        shown = np.zeros(len(labels), dtype=bool)
        shown[np.linspace(0, len(labels) - 1, min(len(labels), MAX_ITEMS)).round().astype(np.int64)] = True
        items = dataset.where(shown)
        rows = embeddings[torch.from_numpy(shown)]
        plane = compute_tsne(normalize(rows) if distance == "cosine" else rows)
        arrays |= {"plane": plane, "labels": items.labels.numpy(), **choose_pictures(items, plane, repeat.background)}
    if "class spectrum" in columns:
        train = repeat.data("train")
        unit = normalize(repeat.embed(train).double())
        arrays["class_spectrum"] = metrics.class_spectrum(unit, train.labels, CLASS_SPECTRUM).numpy()
        arrays["spectrum"] = metrics.spectrum(unit).numpy()
    areas = {"roc-auc": verification.roc_auc(), "pr-auc": verification.pr_auc()}
    arrays |= {"areas": np.array([areas[name] for name in AREAS]), "made_from": np.array(made_from)}
    write_atomic(path, lambda file: np.savez_compressed(file, **arrays))
    return areas


def _read_areas(path: Path, made_from: str) -> dict[str, float] | None:
    """The areas in a file that was made from the same repeat; None if there is no such file."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            if str(file["made_from"]) != made_from:
                return None
            values = file["areas"].tolist()
    except (ValueError, KeyError, OSError, BadZipFile):  # damaged, or of an earlier version
        return None
    return dict(zip(AREAS, values, strict=True))


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


def write_toy_arrays(picture: ToyPicture, path: Path) -> None:
    """Write the points, embeddings and spectrum of a toy problem to an .npz file.

    Args:
        picture: One seed of a variant.
        path: The file to write.
    """
    points = picture.points
    tensors = {
        "train_points": points.train,
        "train_labels": points.train_labels,
        "test_points": points.test,
        "test_labels": points.test_labels,
        "train": picture.train,
        "test": picture.test,
        "spectrum": picture.spectrum,
    }
    arrays: dict[str, Any] = {key: each.numpy() for key, each in tensors.items()}
    write_atomic(path, lambda file: np.savez_compressed(file, **arrays))
