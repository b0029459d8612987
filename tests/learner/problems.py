"""Small problems that every test of the learner may use."""

import numpy as np


def blobs(classes=6, items=8, width=10, seed=0, spread=0.6):
    """Rows around a random center for each class, class after class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), items)
    rows = rng.normal(size=(classes, width))[labels] + spread * rng.normal(size=(len(labels), width))
    return rows, labels


def hidden_classes(classes=40, items=10, seed=0):
    """Classes that differ in 4 of 24 columns only; the others are noise of three times the size."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), items)
    signal = rng.normal(size=(classes, 4))[labels] + 0.2 * rng.normal(size=(len(labels), 4))
    rows = np.hstack([signal, 3 * rng.normal(size=(len(labels), 20))])
    # turned round, so that no single column shows it
    turn, _ = np.linalg.qr(rng.normal(size=(24, 24)))
    return rows @ turn, labels
