"""The one interface behind every data set: items, labels, split, class names, coarse labels and roles."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import registry
from kinfold.data.items import Array, Items

SPLITS = ("train", "validation", "test")
ROLES = ("query", "gallery", "")
SHOWN = 3  # classes that `repr` names


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """N items with a class each.

    labels: int64 (N,), 0..C-1, the position in `classes`. split: one of train, validation, test for each item.
    coarse: int64 (N,), the position in `coarse_classes`. role: query, gallery, or empty for neither.

    >>> from kinfold.data.items import Rows
    >>> birds = create_dataset("birds", Rows(np.zeros((3, 2))), ["wren", "robin", "wren"], ["train", "test", "train"])
    >>> birds.classes, birds.labels.tolist(), len(birds.subset("train"))
    (('robin', 'wren'), [1, 0, 1], 2)
    >>> birds
    <Dataset 'birds': 3 items (2 train, 1 test), 2 classes ('robin', 'wren')>
    """

    name: str
    items: Items
    labels: Tensor
    classes: tuple[str, ...]
    split: Array
    coarse: Tensor | None = None
    coarse_classes: tuple[str, ...] | None = None
    role: Array | None = None

    def __post_init__(self) -> None:
        _check_labels(self.name, self.labels, self.classes, len(self.items))
        if (self.coarse is None) != (self.coarse_classes is None):
            raise ValueError(f"{self.name}: coarse and coarse_classes belong together; one of them is missing")
        if self.coarse is not None and self.coarse_classes is not None:
            _check_labels(f"{self.name}, coarse", self.coarse, self.coarse_classes, len(self.items))
        _check_words(self.name, "split", self.split, SPLITS, len(self.items))
        if self.role is not None:
            _check_words(self.name, "role", self.role, ROLES, len(self.items))

    def __repr__(self) -> str:
        """Counts and a few names: a data set may have thousands of classes."""
        shown = ", ".join(map(repr, self.classes[:SHOWN])) + (", ..." if len(self.classes) > SHOWN else "")
        counts = {word: int((self.split == word).sum()) for word in SPLITS}
        splits = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
        return f"<Dataset {self.name!r}: {len(self):,} items ({splits}), {len(self.classes):,} classes ({shown})>"

    def __len__(self) -> int:
        return len(self.items)

    def subset(self, split: str) -> "Dataset":
        """The items of one split, with labels counted anew from 0 over the classes that are there."""
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}{registry.suggest(split, SPLITS)}; it is {', '.join(SPLITS)}")
        mask = self.split == split
        if not mask.any():
            present = ", ".join(word for word in SPLITS if (self.split == word).any())
            raise ValueError(f"{self.name} has no item in the split {split!r}; it has {present or 'no items'}")
        return self.where(mask, relabel=True)

    def where(self, mask: Tensor | Array, relabel: bool = False) -> "Dataset":
        """The items where `mask` (N,) is True.

        Labels and class names stay as they are, so that a query and its gallery agree; `relabel=True` drops the
        classes that are left without an item and counts the others anew from 0.
        """
        mask = np.asarray(mask)
        if mask.shape != (len(self),) or mask.dtype != np.bool_:
            raise ValueError(f"the mask must be boolean of shape ({len(self)},), got {mask.dtype} of {mask.shape}")
        indices = np.flatnonzero(mask)
        rows = torch.from_numpy(indices)
        labels, classes = self.labels[rows], self.classes
        coarse = None if self.coarse is None else self.coarse[rows]
        coarse_classes = self.coarse_classes
        if relabel:
            labels, classes = _narrowed(labels, classes)
            if coarse is not None and coarse_classes is not None:
                coarse, coarse_classes = _narrowed(coarse, coarse_classes)
        return replace(
            self,
            items=self.items.take(indices),
            labels=labels,
            classes=classes,
            split=self.split[indices],
            coarse=coarse,
            coarse_classes=coarse_classes,
            role=None if self.role is None else self.role[indices],
        )

    def class_sizes(self) -> Tensor:
        """Number of items of every class, int64 (C,)."""
        return torch.bincount(self.labels, minlength=len(self.classes))


def create_dataset(
    name: str,
    items: Items,
    labels: Sequence[Any] | Array,
    split: Sequence[str] | Array,
    coarse: Sequence[Any] | Array | None = None,
    role: Sequence[str] | Array | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """A data set from one label per item: words or integers, which `classes` lists in order (sorted where left out)."""
    if len(items) == 0:
        raise ValueError(f"{name}: there are no items")
    numbers, names = _numbered(name, labels, classes)
    coarse_numbers, coarse_names = (None, None) if coarse is None else _numbered(name, coarse, None)
    return Dataset(
        name=name,
        items=items,
        labels=numbers,
        classes=names,
        split=np.asarray(split, dtype=str),
        coarse=coarse_numbers,
        coarse_classes=coarse_names,
        role=None if role is None else np.asarray(role, dtype=str),
    )


def _numbered(
    name: str, labels: Sequence[Any] | Array, classes: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...]]:
    given = np.asarray(labels)
    if classes is None:
        distinct, numbers = np.unique(given, return_inverse=True)
        return torch.from_numpy(numbers.reshape(-1).astype(np.int64)), tuple(str(word) for word in distinct.tolist())
    place = {word: number for number, word in enumerate(classes)}
    unknown = sorted({str(word) for word in given.tolist()} - set(place))
    if unknown:
        raise ValueError(f"{name}: the label {unknown[0]!r} is not among the {len(place)} classes")
    return torch.tensor([place[str(word)] for word in given.tolist()], dtype=torch.int64), tuple(classes)


def _narrowed(labels: Tensor, classes: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    kept, numbers = torch.unique(labels, return_inverse=True)
    return numbers, tuple(classes[number] for number in kept.tolist())


def _check_labels(name: str, labels: Tensor, classes: tuple[str, ...], count: int) -> None:
    if labels.shape != (count,) or labels.dtype != torch.int64:
        raise ValueError(f"{name}: labels must be int64 of shape ({count},), got {labels.dtype} {tuple(labels.shape)}")
    if count and not (int(labels.min()) >= 0 and int(labels.max()) < len(classes)):
        raise ValueError(
            f"{name}: labels must lie in 0..{len(classes) - 1}; kinfold.data.create_dataset numbers them for you"
        )


def _check_words(name: str, what: str, words: Array, known: tuple[str, ...], count: int) -> None:
    if words.shape != (count,):
        raise ValueError(f"{name}: {what} must have shape ({count},), got {words.shape}")
    unknown = sorted(set(np.unique(words).tolist()) - set(known))
    if unknown:
        raise ValueError(
            f"{name}: unknown {what} {unknown[0]!r}{registry.suggest(str(unknown[0]), known)}; "
            f"it is one of {', '.join(word or 'empty' for word in known)}"
        )
