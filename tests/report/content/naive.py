"""Embeddings of overlapping classes, and their similarities computed by the definition."""

import numpy as np
import torch

from kinfold.data import Rows, create_dataset

COUNT, CLASSES = 90, 6


def rows_and_data(role=None, seed=0):
    """Six classes that overlap."""
    draw = np.random.default_rng(seed)
    labels = np.arange(COUNT) % CLASSES
    rows = (draw.normal(size=(CLASSES, 5))[labels] + 0.9 * draw.normal(size=(COUNT, 5))).astype(np.float32)
    data = create_dataset("naive", Rows(rows), [f"class {label}" for label in labels], ["test"] * COUNT, role=role)
    return torch.from_numpy(rows), data


def scores_by_hand(rows, distance):
    x = rows.numpy().astype(np.float64)
    if distance == "euclidean":
        return np.linalg.norm(x[:, None] - x[None], axis=2)
    x = x / np.linalg.norm(x, axis=1, keepdims=True) if distance == "cosine" else x
    return x @ x.T


def pairs_by_hand(rows, data, distance="cosine"):
    scores = scores_by_hand(rows, distance)
    once = np.triu_indices(COUNT, 1)
    positive = data.labels.numpy()[once[0]] == data.labels.numpy()[once[1]]
    return scores[once], positive
