"""Small sets of labeled rows for tests of adaptation."""

import numpy as np


def noisy_classes(classes=16, per_class=8, width=12, noise=6.0, seed=0):
    """Rows whose classes differ in half of the columns, beside columns of strong noise: LDA helps a lot."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    informative = width // 2
    rows = generator.normal(size=(len(labels), width))
    rows[:, :informative] += 3.0 * generator.normal(size=(classes, informative))[labels]
    rows[:, informative:] *= noise
    return rows.astype(np.float32), labels


def shuffled(seed, classes=16, per_class=6, width=10):
    """The same rows with labels that say nothing about them."""
    rows, labels = noisy_classes(classes, per_class, width, seed=seed)
    return rows, np.random.default_rng(1000 + seed).permutation(labels)
