"""Protocols: which classes train, which validate and which test.

- given: the splits of the dataset.
- classic: the first half of the classes trains, the second half tests.
- query-gallery: the splits of the dataset; its test items are queries and a gallery.
- reality-check (Musgrave et al., ECCV 2020): four folds of the first half of the classes, each of which trains on three
  parts and validates on one. The test classes are the same for all folds.
- shift-0 to shift-4: half of the classes trains and half tests, from near to far (`kinfold.data.class_shift`).
"""

from dataclasses import replace

import numpy as np

from kinfold import registry
from kinfold.data.class_shift import LEVELS, assign_shift
from kinfold.data.dataset import Dataset
from kinfold.data.items import Array

SHIFTS = {f"shift-{level}": level for level in range(LEVELS)}
FOLDS = {"given": 1, "classic": 1, "query-gallery": 1, "reality-check": 4, **dict.fromkeys(SHIFTS, 1)}
# The official split of these trains on one class more than half of all; the published folds halve the classes.
HALVED_DATASETS = ("sop",)


def count_folds(protocol: str) -> int:
    """Return the number of folds of a protocol, each of which is one run.

    Examples:
        >>> count_folds("reality-check")
        4
    """
    registry.check_known("protocol", protocol, FOLDS)
    return FOLDS[protocol]


def assign_fold(dataset: Dataset, protocol: str, fold: int = 0) -> Dataset:
    """Return the dataset with its items in the splits of one fold of a protocol.

    Halves are taken in the order of `dataset.classes`. A dataset that already has test classes keeps them (those of CUB
    and Cars are the second half); only Stanford Online Products is halved again for the reality check.

    Args:
        dataset: The dataset.
        protocol: "given", "classic", "query-gallery", "reality-check", or "shift-0" to "shift-4".
        fold: Number of the fold, from 0.

    Raises:
        ValueError: The protocol is unknown, the fold does not exist, or the dataset has too few classes or no roles.
    """
    if not 0 <= fold < count_folds(protocol):
        raise ValueError(f"the folds of {protocol} are 0 to {count_folds(protocol) - 1}, got {fold}")
    if protocol == "given":
        return dataset
    if protocol in SHIFTS:
        return assign_shift(dataset, SHIFTS[protocol])
    if protocol == "query-gallery":
        is_test = dataset.split == "test"
        if dataset.role is None or not all((dataset.role[is_test] == role).any() for role in ("query", "gallery")):
            raise ValueError(
                f"query-gallery needs test items with the roles query and gallery, which {dataset.name} does not have; "
                "take protocol 'classic'"
            )
        return dataset
    halve = not (dataset.split == "test").any() or (protocol == "reality-check" and dataset.name in HALVED_DATASETS)
    test_classes = _select_second_half(dataset) if halve else _find_test_classes(dataset)
    if protocol == "classic":
        return _assign_splits(dataset, test_classes, None) if halve else dataset
    other_classes = np.flatnonzero(~test_classes)
    validation = hold_out_classes(other_classes, len(test_classes) if halve else None, fold)
    return _assign_splits(dataset, test_classes, validation)


def hold_out_classes(candidates: Array, class_count: int | None, fold: int) -> Array:
    """Select the classes that validate in one fold of the reality check.

    The C candidates stand in a circle. Fold i starts at the floor(i C / 4)-th: first come the training classes, then
    floor(n / 8) classes for validation.

    Args:
        candidates: Numbers of the C classes that do not test.
        class_count: n, the number of all classes; 2 C if None.
        fold: Number of the fold, from 0.

    Returns:
        Numbers of the validation classes.

    Examples:
        >>> hold_out_classes(np.arange(98), 196, 1)[[0, -1]], hold_out_classes(np.arange(98), 196, 2)[[0, -1]]  # Cars
        (array([ 0, 23]), array([25, 48]))
    """
    count = len(candidates)
    held_out = (2 * count if class_count is None else class_count) // 8
    if held_out < 1 or count - held_out < 2:
        raise ValueError(
            f"the reality check needs at least 4 classes that are not for testing, and 2 of them to train; got {count}"
        )
    start = fold * count // 4 + count - held_out
    return candidates[np.arange(start, start + held_out) % count]


def _select_second_half(dataset: Dataset) -> Array:
    count = len(dataset.classes)
    if count < 2:
        raise ValueError(f"{dataset.name} has {count} class; half of the classes train and half test: two are needed")
    return np.arange(count) >= count // 2


def _find_test_classes(dataset: Dataset) -> Array:
    """Which classes have test items, boolean (C,); ValueError if one of them has items in another split too."""
    labels, is_test = dataset.labels.numpy(), dataset.split == "test"
    classes = np.arange(len(dataset.classes))
    tested: Array = np.isin(classes, labels[is_test])
    mixed = np.flatnonzero(tested & np.isin(classes, labels[~is_test]))
    if len(mixed):
        raise ValueError(
            f"{dataset.name}: the class {dataset.classes[int(mixed[0])]!r} has test items and others; a protocol needs "
            "test classes that are never seen in training"
        )
    return tested


def _assign_splits(dataset: Dataset, test_classes: Array, validation: Array | None) -> Dataset:
    split_of_class = np.where(test_classes, "test", "train").astype("<U10")
    if validation is not None:
        split_of_class[validation] = "validation"
    split = split_of_class[dataset.labels.numpy()]
    role = None if dataset.role is None else np.where(split == "test", dataset.role, "")
    return replace(dataset, split=split, role=role)
