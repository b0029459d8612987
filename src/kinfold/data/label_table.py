"""Several labels for each item, from a column of a table: levels of a tree, or a set of tags."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from kinfold.data.columns import Columns, explain_column_option
from kinfold.data.items import Array
from kinfold.pairs.label_columns import read_levels, read_tags
from kinfold.pairs.relation import tree_relation

KINDS = ("levels", "tags")


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Labels of N items, which say how much two items are related.

    Attributes:
        kind: "levels" or "tags".
        rows: int64 (N, L), labels from the coarsest level to the finest; or boolean (N, C), the tags of each item.

    Examples:
        >>> table = LabelTable.from_texts("levels", np.array(["bird/owl", "bird/crow", "fish/cod"]))
        >>> table.relate(torch.tensor([0, 1]), torch.tensor([1, 2]))
        tensor([[0.5000, 0.0000],
                [1.0000, 0.0000]])
        >>> LabelTable.from_texts("tags", np.array(["red;round", "red", ""])).relate(torch.arange(3))[0]
        tensor([ True,  True, False])
    """

    kind: Literal["levels", "tags"]
    rows: Tensor

    @classmethod
    def from_texts(cls, kind: Literal["levels", "tags"], texts: Array) -> "LabelTable":
        """Read "bird/owl" as levels, or "red;round" as tags."""
        column = [str(text) for text in texts.tolist()]
        return cls(kind, read_levels(column) if kind == "levels" else read_tags(column)[0])

    def __len__(self) -> int:
        return self.rows.shape[0]

    def take(self, indices: Array) -> "LabelTable":
        """Return the labels of the items at these positions."""
        return LabelTable(self.kind, self.rows[torch.from_numpy(indices)])

    def to(self, device: torch.device) -> "LabelTable":
        """Return the table on a device."""
        return LabelTable(self.kind, self.rows.to(device))

    def relate(self, i: Tensor, j: Tensor | None = None) -> Tensor:
        """Return how items at positions i (B,) are related to those at positions j (R,), by default i.

        Returns:
            (B, R): the share of equal levels, float32; or whether two items have a tag in common, boolean.
        """
        left = self.rows[i]
        right = left if j is None else self.rows[j]
        if self.kind == "levels":
            return tree_relation(left, right)
        return left.float() @ right.float().T > 0

    def relate_queries(self, queries: int) -> Callable[[Tensor], Tensor]:
        """Return the relevance of the rows after the first `queries` to these, for `kinfold.metrics.evaluate_graded`.

        Where no rows are left, all of them are queries and the gallery at once.
        """
        gallery = torch.arange(0 if queries == len(self) else queries, len(self))
        return lambda block: self.relate(block.cpu(), gallery)


def read_label_table(content: Columns, columns: Mapping[str, str] | None) -> tuple[LabelTable | None, Array | None]:
    """Read the column that `columns` names as levels or as tags; None if it names none.

    Returns:
        The table, and the texts of its column, which serve as classes where there is no column of classes.

    Raises:
        ValueError: Both are named, the column is missing, or a text is not valid.
    """
    kinds = [kind for kind in KINDS if kind in (columns or {})]
    if not kinds:
        return None, None
    if len(kinds) > 1:
        raise ValueError("columns names both levels and tags; a dataset is related by one of them")
    (kind,) = kinds
    texts = content.require((columns or {})[kind], explain_column_option(kind)).astype(str)
    try:
        return LabelTable.from_texts("levels" if kind == "levels" else "tags", texts), np.char.strip(texts)
    except ValueError as error:
        raise ValueError(f"{content.path}, column {(columns or {})[kind]!r}: {error}") from None
