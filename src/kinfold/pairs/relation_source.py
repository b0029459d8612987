"""The relation of a batch, made tile by tile: which pairs of some rows and columns are positive and which negative.

A large batch never has its masks in memory at once: they follow from labels and ids, of which there is one per item.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from kinfold.pairs.masks import count, set_columns, set_excluded
from kinfold.pairs.relation import Relation
from kinfold.pairs.transforms import is_transformed

ALL = slice(None)
# Columns of one class are listed in advance if a row has at most this share of its columns in its class. Searching a
# mask of 4096 x 4096 for its entries took 14 ms, a list from labels 1 ms.
_FEW_COLUMNS = 1 / 16
# rows of masks that are made at a time where only their counts are needed
_COUNTED_ROWS = 256


class RelationSource(Protocol):
    """Which pairs of a batch are positive and which are negative, for any tile of the matrix of pairs (B, R)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of anchors and number of references."""

    @property
    def degree(self) -> Tensor | None:
        """Degrees (B, R) of a real-valued relation, else None."""

    @property
    def is_symmetric(self) -> bool:
        """Whether the pair (i, j) is known to be of the same kind as the pair (j, i)."""

    def tile(self, rows: slice = ALL, columns: slice = ALL) -> Relation:
        """Make the masks of some rows and columns."""

    def index(self, rows: Tensor, columns: Tensor) -> Relation:
        """Make the masks of listed rows (r,) with listed columns (c,)."""

    def are_positive(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return which of the pairs (row, column) are positive, (T,); they must be positive or negative."""

    def includes(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return which of the pairs (row, column) are positive or negative, (T,)."""

    def select_rows(self, rows: slice) -> "RelationSource":
        """Return the relation of some anchors with all references."""

    def count_positives(self) -> Tensor:
        """Number of positives of each anchor, (B,)."""

    def count_negatives(self) -> Tensor:
        """Number of negatives of each anchor, (B,)."""


@dataclass(frozen=True)
class LabelRelation:
    """Items with equal labels are positives, all others negatives.

    Attributes:
        labels: Labels of the anchors, (B,).
        ref_labels: Labels of the references, (R,). None compares a batch with itself: the pair of an item with itself
            is neither positive nor negative.
        ids: Ids of the anchors, (B,), or None. Pairs with equal ids are neither positive nor negative.
        ref_ids: Ids of the references, (R,).
        first_row: Index of the first anchor among the references, if the batch is compared with itself.
        all_labels: Labels of the whole batch that is compared with itself, of which these anchors may be a part.
    """

    labels: Tensor
    ref_labels: Tensor | None = None
    ids: Tensor | None = None
    ref_ids: Tensor | None = None
    first_row: int = 0
    all_labels: Tensor | None = None

    degree = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.labels.shape[0], self.column_labels.shape[0]

    @property
    def is_symmetric(self) -> bool:
        return self.ref_labels is None and self.all_labels is None

    @property
    def column_labels(self) -> Tensor:
        """Labels of the columns, (R,)."""
        if self.ref_labels is not None:
            return self.ref_labels
        return self.labels if self.all_labels is None else self.all_labels

    def tile(self, rows: slice = ALL, columns: slice = ALL) -> Relation:
        if columns == ALL and not is_transformed() and self.positive_columns is not None:
            return self._list_tile(rows)
        labels, others = self.labels[rows], self.column_labels[columns]
        positives = labels[:, None] == others[None, :]
        negatives = ~positives
        shift = None
        if self.ref_labels is None:  # column of the first row in this tile
            shift = self.first_row + (rows.start or 0) - (columns.start or 0)
        same_item = None
        if self.ids is not None and self.ref_ids is not None:
            same_item = self.ids[rows, None] == self.ref_ids[None, columns]
        return Relation.without(positives, negatives, same_item, shift)

    def index(self, rows: Tensor, columns: Tensor) -> Relation:
        positives = self.labels[rows, None] == self.column_labels[None, columns]
        same_item = None
        if self.ids is not None and self.ref_ids is not None:
            same_item = self.ids[rows, None] == self.ref_ids[None, columns]
        if self.ref_labels is None:
            is_same = rows[:, None] + self.first_row == columns[None, :]
            same_item = is_same if same_item is None else same_item | is_same
        return Relation.without(positives, ~positives, same_item)

    def are_positive(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.labels[rows] == self.column_labels[columns]

    def includes(self, rows: Tensor, columns: Tensor) -> Tensor:
        is_used = torch.ones_like(rows, dtype=torch.bool)
        if self.ref_labels is None:
            is_used = rows + self.first_row != columns
        if self.ids is not None and self.ref_ids is not None:
            is_used = is_used & (self.ids[rows] != self.ref_ids[columns])
        return is_used

    def select_rows(self, rows: slice) -> "LabelRelation":
        ids = None if self.ids is None else self.ids[rows]
        ref_ids = self.ids if self.ref_ids is None and self.ids is not None else self.ref_ids
        all_labels = None if self.ref_labels is not None else self.column_labels
        first_row = self.first_row + (rows.start or 0)
        return replace(
            self, labels=self.labels[rows], ids=ids, ref_ids=ref_ids, first_row=first_row, all_labels=all_labels
        )

    def reorder(self, order: Tensor) -> "LabelRelation":
        """Return the relation of the anchors in another order (B,), and of the references if they are the anchors."""
        assert self.first_row == 0
        assert self.all_labels is None
        ids = None if self.ids is None else self.ids[order]
        ref_ids = ids if self.ref_labels is None and self.ref_ids is not None else self.ref_ids
        return replace(self, labels=self.labels[order], ids=ids, ref_ids=ref_ids)

    def count_positives(self) -> Tensor:
        if self.ids is not None or is_transformed():
            return _count_in_chunks(self)[0]
        return self._class_sizes - (1 if self.ref_labels is None else 0)

    def count_negatives(self) -> Tensor:
        if self.ids is not None or is_transformed():
            return _count_in_chunks(self)[1]
        return self.shape[1] - self._class_sizes

    @cached_property
    def _sorted_columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """Columns in the order of their labels, and for each row the range of its class in that order."""
        ordered, order = self.column_labels.sort(stable=True)
        first = torch.searchsorted(ordered, self.labels)
        return order, first, torch.searchsorted(ordered, self.labels, right=True) - first

    @property
    def _class_sizes(self) -> Tensor:
        """Number of references with the label of each anchor, (B,)."""
        return self._sorted_columns[2]

    @cached_property
    def _members(self) -> tuple[Tensor, Tensor] | None:
        """Columns (B, W) with the label of each anchor, and which of them exist; None if they are many."""
        if is_transformed() or self.labels.device.type != "cpu" or 0 in self.shape:
            return None
        order, first, sizes = self._sorted_columns
        width = max(1, int(sizes.max()))  # one where no anchor has a positive, as in `list_columns`
        if width > max(4.0, _FEW_COLUMNS * self.shape[1]):
            return None
        position = torch.arange(width, device=order.device)
        exists = position < sizes[:, None]
        return order[(first[:, None] + position).clamp(max=order.shape[0] - 1)], exists

    @cached_property
    def positive_columns(self) -> tuple[Tensor, Tensor] | None:
        """Columns (B, W) among which the positives of each anchor are, and which of them are positives; None if they
        are many or if ids exclude some."""
        if self.ids is not None or self._members is None:
            return None
        index, exists = self._members
        if self.ref_labels is not None:
            return index, exists
        rows, width = index.shape
        is_other = (index != torch.arange(self.first_row, self.first_row + rows)[:, None]) | ~exists
        if width == 1:  # every class has one item
            return index, is_other & exists
        return index[is_other].view(rows, width - 1), exists[is_other].view(rows, width - 1)

    def _list_tile(self, rows: slice) -> Relation:
        """Make the masks of whole rows from the listed columns of each class: faster than comparing all labels."""
        assert self._members is not None
        assert self.positive_columns is not None
        (members, exists), (index, is_positive) = (
            (columns[rows], used[rows]) for columns, used in (self._members, self.positive_columns)
        )
        first = self.shape[1] * torch.arange(index.shape[0])[:, None]
        excluded = (members + first)[exists]
        negatives = torch.ones(index.shape[0], self.shape[1], dtype=torch.bool)
        negatives.view(-1).index_fill_(0, excluded, False)
        positives = torch.zeros_like(negatives)
        positives.view(-1).index_fill_(0, (index + first)[is_positive], True)
        set_excluded(negatives, excluded)
        set_columns(positives, index, is_positive)
        return Relation(positives, negatives)


@dataclass(frozen=True)
class MatrixRelation:
    """A relation that was passed, or that a miner selected.

    Attributes:
        relation: The masks, (B, R).
    """

    relation: Relation

    is_symmetric = False

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.relation.positives.shape
        return rows, columns

    @property
    def degree(self) -> Tensor | None:
        return self.relation.degree

    def tile(self, rows: slice = ALL, columns: slice = ALL) -> Relation:
        if rows == ALL and columns == ALL:
            return self.relation
        degree = None if self.degree is None else self.degree[rows, columns]
        return Relation(self.relation.positives[rows, columns], self.relation.negatives[rows, columns], degree)

    def index(self, rows: Tensor, columns: Tensor) -> Relation:
        at = rows[:, None], columns[None, :]
        return Relation(self.relation.positives[at], self.relation.negatives[at])

    def are_positive(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.relation.positives[rows, columns]

    def includes(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.relation.includes(rows, columns)

    def select_rows(self, rows: slice) -> "MatrixRelation":
        return MatrixRelation(self.tile(rows))

    def count_positives(self) -> Tensor:
        return count(self.relation.positives)

    def count_negatives(self) -> Tensor:
        return count(self.relation.negatives)


def _count_in_chunks(source: RelationSource) -> tuple[Tensor, Tensor]:
    """Positives and negatives of each anchor, (B,), from masks of some rows at a time."""
    starts = range(0, max(1, source.shape[0]), _COUNTED_ROWS)
    parts = [source.tile(slice(start, start + _COUNTED_ROWS)) for start in starts]
    return torch.cat([count(p.positives) for p in parts]), torch.cat([count(p.negatives) for p in parts])
