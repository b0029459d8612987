"""Repeated splits of the training classes: some are held out, a space is fitted to the others."""

from dataclasses import dataclass

import numpy as np
import torch

from kinfold.data.items import Array
from kinfold.seeding import derive_generator

FOLDS = 4  # of a repeat; two of each half of the classes
MIN_CLASSES = 2 * FOLDS  # two classes in each fold: with one, every neighbor is right
_DIRECTIONS = 3  # of class means, of which a division into neighbors draws a combination
_SPLIT_SEED = 301  # tells these draws from all other draws of a seed


@dataclass(frozen=True)
class ClassSplit:
    """Training classes of which some are held out.

    Attributes:
        number: Position among all splits.
        repeat: Number of the repeat. The folds of a repeat hold out every class once.
        half: 0 or 1. What is measured on the classes of one half is chosen by the scores of the other half.
        held_out: The classes that are held out, sorted.
    """

    number: int
    repeat: int
    half: int
    held_out: tuple[int, ...]


def split_training_classes(class_means: Array, repeats: int, seed: int) -> list[ClassSplit]:
    """Draw repeated splits of classes.

    The classes are divided into two halves once. Each repeat divides each half into two folds, so that no fold has
    classes of both halves. A candidate that was selected by its scores on folds of one half is measured on folds of the
    other, and the selection does not flatter the measurement.

    Classes that a space will meet later may be like the training classes or unlike them, and a map such as LDA helps
    with the first and hurts with the second. So every other division of a half is one into neighbors: classes on one
    side of a direction in which class means vary much, and those on the other side. The halves are divided in this way
    too. The remaining divisions are random.

    Args:
        class_means: One row for each class in the input space, (C, d).
        repeats: Number of repeats, each with four splits.
        seed: Seed of the draws.

    Returns:
        The splits, 4 x repeats.

    Raises:
        ValueError: There are fewer than eight classes.

    Examples:
        >>> means = np.arange(8.0)[:, None]
        >>> [split.held_out for split in split_training_classes(means, repeats=1, seed=1)]
        [(2, 3), (0, 1), (5, 6), (4, 7)]
    """
    classes = len(class_means)
    if classes < MIN_CLASSES:
        raise ValueError(
            f"{classes} training classes are too few to hold some out: {MIN_CLASSES} are needed, two in each of "
            f"{FOLDS} folds"
        )
    generator = derive_generator(seed, _SPLIT_SEED)
    halves = _divide(np.arange(classes), _find_directions(class_means), generator)
    directions = [_find_directions(class_means[members]) for members in halves]
    splits: list[ClassSplit] = []
    for repeat in range(repeats):
        for half, members in enumerate(halves):
            generator = derive_generator(seed, _SPLIT_SEED, repeat, half)
            by_neighbors = (repeat + half) % 2 == 0
            for fold in _divide(members, directions[half] if by_neighbors else None, generator):
                splits.append(ClassSplit(len(splits), repeat, half, tuple(sorted(fold.tolist()))))
    return splits


def _find_directions(class_means: Array) -> Array:
    """Return the positions of classes in the leading principal directions of their means, (C, at most 3)."""
    centered = class_means - class_means.mean(axis=0)
    if len(centered) > centered.shape[1]:
        positions: Array = centered @ np.linalg.eigh(centered.T @ centered)[1][:, -_DIRECTIONS:]
    else:
        values, vectors = np.linalg.eigh(centered @ centered.T)
        positions = vectors[:, -_DIRECTIONS:] * np.sqrt(values[-_DIRECTIONS:].clip(min=0.0))
    return positions


def _divide(members: Array, directions: Array | None, generator: torch.Generator) -> tuple[Array, Array]:
    """Divide classes into two parts of equal size: at random, or along a random combination of directions."""
    if directions is None:
        order = torch.randperm(len(members), generator=generator).numpy()
    else:
        weights = torch.randn(directions.shape[1], generator=generator, dtype=torch.float64).numpy()
        order = np.argsort(directions @ weights, kind="stable")
    middle = len(members) // 2
    return members[order[:middle]], members[order[middle:]]


def choose_rows(labels: Array, split: ClassSplit, seed: int, limit: int) -> tuple[Array, Array]:
    """Return the positions of the rows to fit to and of those to measure.

    Args:
        labels: Class of each row, (N,).
        split: The split.
        seed: Seed of the draw.
        limit: Rows to measure, at most. Where there are more, whole classes are left out at random, and of the two
            classes that stay at least, rows.

    Returns:
        Positions of the rows of all other classes, and of rows of held-out classes, both sorted.
    """
    is_held_out = np.isin(labels, split.held_out)
    measured = np.flatnonzero(is_held_out)
    if len(measured) > limit:
        generator = derive_generator(seed, _SPLIT_SEED, split.number, 2)
        order = np.array(split.held_out)[torch.randperm(len(split.held_out), generator=generator).numpy()]
        sizes = np.cumsum([np.count_nonzero(labels == label) for label in order])
        kept = order[: max(2, int(np.searchsorted(sizes, limit, side="right")))]
        measured = np.flatnonzero(np.isin(labels, kept))
        if len(measured) > limit:
            measured = np.sort(measured[torch.randperm(len(measured), generator=generator).numpy()[:limit]])
    return np.flatnonzero(~is_held_out), measured
