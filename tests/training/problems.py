"""Small things to train on, made on the spot."""

from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data import Dataset, Rows, create_dataset

CLASSES, PER_CLASS, WIDTH = 24, 8, 12


def rows(seed: int = 0, classes: int = CLASSES, per_class: int = PER_CLASS) -> tuple[np.ndarray, np.ndarray]:
    """Points around class centers in 4 of 12 directions, noise in the others."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    signal = draw.normal(size=(classes, 4))[labels] + 0.4 * draw.normal(size=(len(labels), 4))
    return np.concatenate([signal, 0.6 * draw.normal(size=(len(labels), WIDTH - 4))], axis=1).astype(np.float32), labels


def features(seed: int = 0, test: bool = True) -> Dataset:
    """A third of the classes are test classes."""
    x, y = rows(seed)
    last = CLASSES * 2 // 3 if test else CLASSES
    return create_dataset("points", Rows(x), y, np.where(y < last, "train", "test"))


def feature_file(folder: Path) -> Path:
    x, y = rows()
    path = folder / "points.npz"
    np.savez(path, embeddings=x, labels=y, split=np.where(y < CLASSES * 2 // 3, "train", "test"))
    return path


def images(seed: int = 0, classes: int = 12, per_class: int = 6, size: int = 12) -> Dataset:
    """Small gray images: a pattern per class with noise."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    pattern = draw.integers(0, 200, size=(classes, size, size))[labels]
    noisy = np.clip(pattern + draw.integers(0, 56, size=pattern.shape), 0, 255).astype(np.uint8)
    return create_dataset("patterns", Rows(noisy), labels, np.where(labels < classes * 2 // 3, "train", "test"))


def recipe(**changed: Any) -> dict[str, Any]:
    """A run of a second; keyword arguments replace whole tables."""
    tables: dict[str, Any] = {
        "data": {"name": "features", "validation": 0.25},
        "model": {"dim": 8},
        "loss": {"name": "multi-similarity"},
        "sampler": {"name": "spc", "batch_size": 24, "per_class": 4},
        "optimizer": {"lr": 0.01},
        "training": {"steps": 20, "log_every": 5},
        "evaluation": {"every": 10, "metrics": ["recall@1", "map@r"], "diagnose": "never"},
    }
    return tables | changed
