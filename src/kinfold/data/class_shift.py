"""Splits of the classes from near to far: how well does a space work for classes that are unlike the training classes?

Every split trains on half of the classes and tests on the other half. What changes is the distance between the mean of
the training classes and that of the test classes in a frozen space. The ladder follows the idea of Milbich et al.,
NeurIPS 2021: swap single classes between the halves, and take splits at equal steps of the distance on the way.
"""

from dataclasses import dataclass, replace

import numpy as np

from kinfold.data.dataset import Dataset
from kinfold.data.items import Array, Rows

LEVELS = 5
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class ClassShift:
    """One split of the ladder.

    Attributes:
        test_classes: Which classes test, boolean (C,).
        distance: Distance between the means of the training classes and of the test classes, in units of the root mean
            square distance of a class mean from the mean of all.
    """

    test_classes: Array
    distance: float


def make_shifts(class_means: Array, levels: int = LEVELS) -> list[ClassShift]:
    """Return splits of the classes into halves, from the nearest that swaps of classes reach to the farthest.

    The result depends on the means alone: there is no random draw.

    Args:
        class_means: One row for each class, (C, d).
        levels: Number of splits.

    Returns:
        The splits, nearest first. Distances rise in equal steps, as far as the number of classes allows.

    Raises:
        ValueError: There are fewer than 4 classes, or fewer than 2 levels.
    """
    if len(class_means) < 4 or levels < 2:
        raise ValueError(f"a ladder needs 4 classes and 2 levels or more, got {len(class_means)} and {levels}")
    centered = np.asarray(class_means, dtype=np.float64)
    centered = centered - centered.mean(axis=0)
    centered /= max(np.sqrt((centered**2).sum(axis=1).mean()), 1e-300)
    signs = np.where(np.arange(len(centered)) % 2 == 0, 1.0, -1.0)  # 1 trains, -1 tests
    signs = _swap_until_best(centered, signs, sign=-1.0)[-1]
    path = _swap_until_best(centered, signs, sign=1.0)
    distances = np.array([_measure(centered, step) for step in path])
    targets = np.linspace(distances[0], distances[-1], levels)
    chosen = [int(abs(distances - target).argmin()) for target in targets]
    return [ClassShift(path[step] < 0, float(distances[step])) for step in chosen]


def assign_shift(dataset: Dataset, level: int, class_means: Array | None = None, levels: int = LEVELS) -> Dataset:
    """Return the dataset with its items in the splits of one step of the ladder.

    Args:
        dataset: The dataset. Its own splits are not used.
        level: Step of the ladder, from 0, the nearest, to levels - 1, the farthest.
        class_means: Means of the classes in a frozen space, (C, d), in the order of `dataset.classes`. Left out, the
            items must be rows of features, whose unit vectors are averaged.
        levels: Number of steps.

    Raises:
        ValueError: The level does not exist, or the items are images and no means are given.
    """
    if not 0 <= level < levels:
        raise ValueError(f"the levels of a ladder of {levels} are 0 to {levels - 1}, got {level}")
    if class_means is None:
        class_means = average_classes(dataset)
    if len(class_means) != len(dataset.classes):
        raise ValueError(f"class_means has {len(class_means)} rows for the {len(dataset.classes)} classes")
    shift = make_shifts(class_means, levels)[level]
    split = np.where(shift.test_classes[dataset.labels.numpy()], "test", "train").astype("<U10")
    return replace(dataset, split=split, role=None)


def average_classes(dataset: Dataset) -> Array:
    """Return the mean of the unit vectors of every class, (C, d) float64; ValueError where the items are images."""
    items = dataset.items
    if not isinstance(items, Rows):
        raise ValueError(
            "a ladder of splits needs a frozen space: embed the images with `kinfold embed` and use that feature file, "
            "or call kinfold.data.assign_shift with class_means"
        )
    labels = dataset.labels.numpy()
    counts = np.bincount(labels, minlength=len(dataset.classes))
    sums: Array | None = None
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        rows = np.asarray(items.at(np.arange(start, min(start + _ROWS_AT_ONCE, len(labels)))), dtype=np.float64)
        rows = rows.reshape(len(rows), -1)
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        if sums is None:
            sums = np.zeros((len(counts), rows.shape[1]))
        np.add.at(sums, labels[start : start + len(rows)], rows)
    assert sums is not None
    means: Array = sums / np.maximum(counts, 1)[:, None]
    return means


def _swap_until_best(means: Array, signs: Array, sign: float) -> list[Array]:
    """Swap the pair of classes that raises (sign 1) or lowers (sign -1) the distance most, until none does.

    With signs s and rows m, the squared distance is proportional to |sum_c s_c m_c|^2. Swapping a training class i
    and a test class j changes the sum by 2 (m_j - m_i).
    """
    path = [signs]
    products = means @ means.T
    squares = np.diag(products)
    while True:
        train, test = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
        along = means @ (signs @ means)  # product of each mean with the sum
        # |sum + 2 (m_j - m_i)|^2 - |sum|^2, over 4
        change = (along[test][None, :] - along[train][:, None]) + (
            squares[train][:, None] + squares[test][None, :] - 2 * products[np.ix_(train, test)]
        )
        change = sign * change
        best = int(change.argmax())
        if change.flat[best] <= 1e-12:
            return path
        i, j = np.unravel_index(best, change.shape)
        signs = signs.copy()
        signs[train[i]], signs[test[j]] = -1.0, 1.0
        path.append(signs)


def _measure(means: Array, signs: Array) -> float:
    difference = means[signs > 0].mean(axis=0) - means[signs < 0].mean(axis=0)
    return float(np.linalg.norm(difference))
