"""The relation of a batch as a few small integers per item, from which masks are computed inside compiled tiles."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kinfold.pairs.relation_source import ALL, LabelRelation, RelationSource


@dataclass(frozen=True)
class CompactRelation:
    """Pairs with equal classes are positives, other pairs negatives; pairs with equal items are neither.

    Attributes:
        row_classes, column_classes: int32, (B,) and (R,).
        row_items, column_items: int32, (B,) and (R,); None if no pair is left out.
        positive_columns, exists: Columns (B, W) among which the positives of an anchor are, and which of them are; None
            if there are many.
    """

    row_classes: Tensor
    column_classes: Tensor
    row_items: Tensor | None = None
    column_items: Tensor | None = None
    positive_columns: Tensor | None = None
    exists: Tensor | None = None

    @classmethod
    def from_source(cls, source: RelationSource) -> "CompactRelation | None":
        """Make it from labels and ids; None for a relation that is a matrix."""
        if not isinstance(source, LabelRelation):
            return None
        rows, columns = _number(source.labels, source.column_labels)
        items: tuple[Tensor | None, Tensor | None] = None, None
        if source.ids is not None and source.ref_ids is not None:
            items = _number(source.ids, source.ref_ids)
        elif source.ref_labels is None:
            position = torch.arange(columns.shape[0], dtype=torch.int32, device=columns.device)
            items = position[source.first_row : source.first_row + rows.shape[0]], position
        known = source.positive_columns
        if known is None:
            return cls(rows, columns, *items)
        # few widths, so that batches whose classes differ a little in size have tensors of the same shape
        width = known[0].shape[1]
        padding = 0, (1 << (width - 1).bit_length()) - width
        return cls(rows, columns, *items, *(functional.pad(table, padding) for table in known))

    def tile(self, rows: slice = ALL, columns: slice = ALL) -> "CompactRelation":
        """Return the part of some rows and columns; the columns of positives are known for whole rows only."""
        items, others = self.row_items, self.column_items
        known = self.positive_columns, self.exists
        if columns != ALL:
            known = None, None
        return CompactRelation(
            self.row_classes[rows],
            self.column_classes[columns],
            None if items is None else items[rows],
            None if others is None else others[columns],
            *(None if table is None else table[rows] for table in known),
        )


def _number(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Replace values by small integers that are equal for equal values."""
    numbers = torch.unique(torch.cat([rows, columns]), return_inverse=True)[1].to(torch.int32)
    return numbers[: rows.shape[0]], numbers[rows.shape[0] :]
