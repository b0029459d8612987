"""Repeated splits of the training classes: some are held out, a space is fitted to the others."""

from dataclasses import dataclass

import numpy as np
import torch

from kinfold.data.items import Array
from kinfold.seeding import derive_generator

FOLDS = 4  # of a repeat; two of each half of the classes
MIN_CLASSES = 2 * FOLDS  # two classes in each fold: with one, every neighbor is right
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


def split_training_classes(classes: int, repeats: int, seed: int) -> list[ClassSplit]:
    """Draw repeated splits of classes.

    The classes are divided into two halves once. Each repeat divides each half into two folds, so that no fold has
    classes of both halves. A candidate that was selected by its scores on folds of one half is measured on folds of the
    other, and the selection does not flatter the measurement.

    Args:
        classes: Number of training classes.
        repeats: Number of repeats, each with four splits.
        seed: Seed of the draws.

    Returns:
        The splits, 4 x repeats.

    Raises:
        ValueError: There are fewer than eight classes.

    Examples:
        >>> [split.held_out for split in split_training_classes(8, repeats=1, seed=0)]
        [(0, 4), (1, 7), (5, 6), (2, 3)]
    """
    if classes < MIN_CLASSES:
        raise ValueError(
            f"{classes} training classes are too few to hold some out: {MIN_CLASSES} are needed, two in each of "
            f"{FOLDS} folds"
        )
    order = torch.randperm(classes, generator=derive_generator(seed, _SPLIT_SEED)).tolist()
    halves = (order[: classes // 2], order[classes // 2 :])
    splits: list[ClassSplit] = []
    for repeat in range(repeats):
        for half, members in enumerate(halves):
            generator = derive_generator(seed, _SPLIT_SEED, repeat, half)
            drawn = [members[position] for position in torch.randperm(len(members), generator=generator).tolist()]
            middle = len(drawn) // 2
            for fold in (drawn[:middle], drawn[middle:]):
                splits.append(ClassSplit(len(splits), repeat, half, tuple(sorted(fold))))
    return splits


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
