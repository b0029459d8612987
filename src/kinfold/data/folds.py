"""Protocols: which classes train, which validate and which test.

given: as the data set says. classic: the first half of the classes trains, the second half tests. query-gallery: as the
data set says, its test items being queries and a gallery. reality-check (Musgrave et al., ECCV 2020): four folds of the
first half of the classes, each of which trains on three parts and validates on one; the test classes are the same for
all.
"""

from dataclasses import replace

import numpy as np

from kinfold import registry
from kinfold.data.dataset import Dataset
from kinfold.data.items import Array

FOLDS = {"given": 1, "classic": 1, "query-gallery": 1, "reality-check": 4}
HALVED = ("sop",)  # its own split gives one class more to training than half of all, which the published folds take


def count_folds(protocol: str) -> int:
    """How many runs one repeat of a protocol takes.

    >>> count_folds("reality-check")
    4
    """
    if protocol not in FOLDS:
        near = registry.suggest(protocol, FOLDS)
        raise ValueError(f"unknown protocol {protocol!r}{near}; it is {', '.join(FOLDS)}")
    return FOLDS[protocol]


def assign_fold(dataset: Dataset, protocol: str, fold: int = 0) -> Dataset:
    """The data set with its items in the splits that the protocol's fold gives them.

    Half of the classes is meant in the order of `dataset.classes`. A data set with test classes of its own keeps those
    (CUB's and Cars' are the second half); only Stanford Online Products is halved anew for the reality check.
    """
    if not 0 <= fold < count_folds(protocol):
        raise ValueError(f"the folds of {protocol} are 0 to {count_folds(protocol) - 1}, got {fold}")
    if protocol == "given":
        return dataset
    if protocol == "query-gallery":
        tested = dataset.split == "test"
        if dataset.role is None or not all((dataset.role[tested] == word).any() for word in ("query", "gallery")):
            raise ValueError(
                f"query-gallery needs test items with the roles query and gallery, which {dataset.name} does not have; "
                "take protocol 'classic'"
            )
        return dataset
    halved = not (dataset.split == "test").any() or (protocol == "reality-check" and dataset.name in HALVED)
    tested = _second_half(dataset) if halved else _classes(dataset, dataset.split == "test")
    if protocol == "classic":
        return _with(dataset, tested, None) if halved else dataset
    return _with(dataset, tested, hold_out_classes(np.flatnonzero(~tested), len(tested) if halved else None, fold))


def hold_out_classes(learned: Array, classes: int | None, fold: int) -> Array:
    """Which of the classes that are not for testing validate in one fold of the reality check.

    C classes in their order, those of the fold counted from the floor(i C / 4)-th and round again to the first: the
    training classes, then floor(n / 8) for validation, n being the number of all classes (2 C where that is not known).

    >>> hold_out_classes(np.arange(98), 196, 1)[[0, -1]], hold_out_classes(np.arange(98), 196, 2)[[0, -1]]  # Cars
    (array([ 0, 23]), array([25, 48]))
    """
    count = len(learned)
    held = (2 * count if classes is None else classes) // 8
    if held < 1 or count - held < 2:
        raise ValueError(
            f"the reality check needs at least 4 classes that are not for testing, and 2 of them to train; got {count}"
        )
    start = fold * count // 4 + count - held
    return learned[np.arange(start, start + held) % count]


def _second_half(dataset: Dataset) -> Array:
    count = len(dataset.classes)
    if count < 2:
        raise ValueError(f"{dataset.name} has {count} class; half of the classes train and half test: two are needed")
    return np.arange(count) >= count // 2


def _classes(dataset: Dataset, items: Array) -> Array:
    """Which classes the items belong to, (C,); ValueError where they have others in them too."""
    labels = dataset.labels.numpy()
    found: Array = np.zeros(len(dataset.classes), dtype=bool)
    found[labels[items]] = True
    both = found.copy()
    both[np.setdiff1d(np.arange(len(both)), labels[~items])] = False
    if both.any():
        name = dataset.classes[int(np.flatnonzero(both)[0])]
        raise ValueError(
            f"{dataset.name}: the class {name!r} has test items and others; a protocol needs test classes that are "
            "never seen in training"
        )
    return found


def _with(dataset: Dataset, tested: Array, validating: Array | None) -> Dataset:
    words = np.where(tested, "test", "train").astype("<U10")
    if validating is not None:
        words[validating] = "validation"
    split = words[dataset.labels.numpy()]
    role = None if dataset.role is None else np.where(split == "test", dataset.role, "")
    return replace(dataset, split=split, role=role)
