"""The interface behind every dataset: items, labels, splits, class names, coarse labels and roles."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import registry
from kinfold.data.items import Array, Items
from kinfold.data.label_table import LabelTable
from kinfold.pairs.labels import reindex

SPLITS = ("train", "validation", "test")
ROLES = ("query", "gallery", "")
SHOWN = 3  # class names in `repr`


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """N items, each with a class and a split.

    `create_dataset` makes one from labels of any kind, and `load` from files.

    Args:
        name: Name for messages and reports.
        items: The images or rows of features.
        labels: int64 (N,) with values 0..C-1, the position of each item's class in `classes`.
        classes: Names of the C classes.
        split: "train", "validation" or "test" for each item, (N,).
        coarse: int64 (N,), the position of each item's coarse class in `coarse_classes`.
        coarse_classes: Names of the coarse classes, such as the families of species.
        role: "query", "gallery" or "" (neither) for each item, (N,).
        label_table: Levels of a tree or tags of each item, which losses and metrics of related items use.

    Raises:
        ValueError: Shapes or types do not fit, or a split or role is unknown.

    Examples:
        >>> from kinfold.data.items import Rows
        >>> features = Rows(np.zeros((3, 2)))
        >>> birds = create_dataset("birds", features, ["wren", "robin", "wren"], ["train", "test", "train"])
        >>> birds.classes, birds.labels.tolist(), len(birds.subset("train"))
        (('robin', 'wren'), [1, 0, 1], 2)
        >>> birds
        <Dataset 'birds': 3 items (2 train, 1 test), 2 classes ('robin', 'wren')>
        >>> print(birds.table())
        birds  items  classes  smallest class  largest class
        train      2        1               2              2
        test       1        1               1              1
        all        3        2               1              2
    """

    name: str
    items: Items
    labels: Tensor
    classes: tuple[str, ...]
    split: Array
    coarse: Tensor | None = None
    coarse_classes: tuple[str, ...] | None = None
    role: Array | None = None
    label_table: LabelTable | None = None

    def __post_init__(self) -> None:
        _check_labels(self.name, self.labels, self.classes, len(self.items))
        if (self.coarse is None) != (self.coarse_classes is None):
            raise ValueError(f"{self.name}: coarse and coarse_classes belong together; one of them is missing")
        if self.coarse is not None and self.coarse_classes is not None:
            _check_labels(f"{self.name}, coarse", self.coarse, self.coarse_classes, len(self.items))
        _check_values(self.name, "split", self.split, SPLITS, len(self.items))
        if self.role is not None:
            _check_values(self.name, "role", self.role, ROLES, len(self.items))
        if self.label_table is not None and len(self.label_table) != len(self.items):
            raise ValueError(f"{self.name}: {len(self.items)} items but {len(self.label_table)} rows of labels")

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.classes[:SHOWN])) + (", ..." if len(self.classes) > SHOWN else "")
        counts = {split: int((self.split == split).sum()) for split in SPLITS}
        splits = ", ".join(f"{count:,} {split}" for split, count in counts.items() if count)
        return f"<Dataset {self.name!r}: {len(self):,} items ({splits}), {len(self.classes):,} classes ({shown})>"

    def _repr_html_(self) -> str:
        """Return the table of splits as HTML, for notebooks."""
        header, *rows = [[html.escape(cell) for cell in row] for row in self._count_splits()]
        head = "".join(f"<th>{cell}</th>" for cell in header)
        body = "".join(
            f"<tr><th>{row[0]}</th>" + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>" for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def table(self) -> str:
        """Return a table with the number of items and classes of each split."""
        rows = self._count_splits()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))]).rstrip() for row in rows
        )

    def _count_splits(self) -> list[list[str]]:
        """Rows of cells: a header, the splits that have items, and all items."""
        rows = [[self.name, "items", "classes", "smallest class", "largest class"]]
        for split in (*SPLITS, "all"):
            mask = torch.from_numpy((self.split == split) | (split == "all"))
            sizes = torch.bincount(self.labels[mask], minlength=len(self.classes))
            sizes = sizes[sizes > 0]
            if len(sizes):
                numbers = (int(sizes.sum()), len(sizes), int(sizes.min()), int(sizes.max()))
                rows.append([split, *(f"{number:,}" for number in numbers)])
        return rows

    def __len__(self) -> int:
        return len(self.items)

    def subset(self, split: str) -> "Dataset":
        """Return the items of one split, with labels renumbered from 0 over the classes that remain.

        Args:
            split: "train", "validation" or "test".

        Raises:
            ValueError: The split is unknown or has no items.
        """
        registry.check_known("split", split, SPLITS)
        mask = self.split == split
        if not mask.any():
            present = ", ".join(name for name in SPLITS if (self.split == name).any())
            raise ValueError(f"{self.name} has no item in the split {split!r}; it has {present or 'no items'}")
        return self.where(mask, relabel=True)

    def where(self, mask: Tensor | Array, relabel: bool = False) -> "Dataset":
        """Return the items where a mask is True.

        Args:
            mask: Boolean (N,).
            relabel: Drop the classes that have no item left, and renumber the others from 0. By default labels and
                class names stay as they are, so that queries and gallery agree.

        Raises:
            ValueError: The mask has another type or shape.
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
            labels, classes = _drop_empty_classes(labels, classes)
            if coarse is not None and coarse_classes is not None:
                coarse, coarse_classes = _drop_empty_classes(coarse, coarse_classes)
        return replace(
            self,
            items=self.items.take(indices),
            labels=labels,
            classes=classes,
            split=self.split[indices],
            coarse=coarse,
            coarse_classes=coarse_classes,
            role=None if self.role is None else self.role[indices],
            label_table=None if self.label_table is None else self.label_table.take(indices),
        )

    def class_sizes(self) -> Tensor:
        """Return the number of items of every class, int64 (C,)."""
        return torch.bincount(self.labels, minlength=len(self.classes))


def create_dataset(
    name: str,
    items: Items,
    labels: Sequence[Any] | Array,
    split: Sequence[str] | Array,
    coarse: Sequence[Any] | Array | None = None,
    role: Sequence[str] | Array | None = None,
    classes: Sequence[str] | None = None,
    label_table: LabelTable | None = None,
) -> Dataset:
    """Create a dataset from one label per item.

    Args:
        name: Name for messages and reports.
        items: The images or rows of features, such as `ImageFiles` or `Rows`.
        labels: Class of each item: strings or integers, (N,).
        split: "train", "validation" or "test" for each item, (N,).
        coarse: Coarse class of each item, (N,).
        role: "query", "gallery" or "" for each item, (N,).
        classes: Class names in the order of their numbers; sorted labels if left out.
        label_table: Levels of a tree or tags of each item.

    Returns:
        The dataset, with labels numbered from 0.

    Raises:
        ValueError: There are no items, lengths differ, or a label is not among `classes`.
    """
    if len(items) == 0:
        raise ValueError(f"{name}: there are no items")
    numbers, names = _number_classes(name, labels, classes)
    coarse_numbers, coarse_names = (None, None) if coarse is None else _number_classes(name, coarse, None)
    return Dataset(
        name=name,
        items=items,
        labels=numbers,
        classes=names,
        split=np.asarray(split, dtype=str),
        coarse=coarse_numbers,
        coarse_classes=coarse_names,
        role=None if role is None else np.asarray(role, dtype=str),
        label_table=label_table,
    )


def _number_classes(
    name: str, labels: Sequence[Any] | Array, classes: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...]]:
    values = np.asarray(labels)
    if classes is None:  # not `reindex`: files may store labels as floats
        distinct, numbers = np.unique(values, return_inverse=True)
        return torch.from_numpy(numbers.reshape(-1).astype(np.int64)), tuple(map(str, distinct.tolist()))
    number_of = {label: number for number, label in enumerate(classes)}
    unknown = sorted({str(label) for label in values.tolist()} - set(number_of))
    if unknown:
        raise ValueError(f"{name}: the label {unknown[0]!r} is not among the {len(number_of)} classes")
    return torch.tensor([number_of[str(label)] for label in values.tolist()], dtype=torch.int64), tuple(classes)


def _drop_empty_classes(labels: Tensor, classes: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    numbers, remaining = reindex(labels)
    return numbers, tuple(classes[int(number)] for number in remaining)


def _check_labels(name: str, labels: Tensor, classes: tuple[str, ...], count: int) -> None:
    if labels.shape != (count,) or labels.dtype != torch.int64:
        raise ValueError(f"{name}: labels must be int64 of shape ({count},), got {labels.dtype} {tuple(labels.shape)}")
    if count and not (int(labels.min()) >= 0 and int(labels.max()) < len(classes)):
        raise ValueError(
            f"{name}: labels must lie in 0..{len(classes) - 1}; kinfold.data.create_dataset numbers them for you"
        )


def _check_values(name: str, what: str, values: Array, allowed: tuple[str, ...], count: int) -> None:
    if values.shape != (count,):
        raise ValueError(f"{name}: {what} must have shape ({count},), got {values.shape}")
    unknown = sorted(set(np.unique(values).tolist()) - set(allowed))
    if unknown:
        raise ValueError(
            f"{name}: unknown {what} {unknown[0]!r}{registry.suggest(str(unknown[0]), allowed)}; "
            f"it is one of {', '.join(value or 'empty' for value in allowed)}"
        )
