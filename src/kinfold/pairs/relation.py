"""Which pairs are positive and which are negative, as two boolean matrices."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.pairs.masks import count
from kinfold.pairs.transforms import is_transformed


@dataclass(frozen=True)
class Relation:
    """Masks of the positive and the negative pairs; a pair in neither mask is ignored.

    Attributes:
        positives: Boolean (B, R).
        negatives: Boolean (B, R).
        degree: (B, R) floating point, for a real-valued relation only. A pair of degree r counts r as positive and 1 -
            r as negative, so it is in both masks if 0 < r < 1.
    """

    positives: Tensor
    negatives: Tensor
    degree: Tensor | None = None

    def __post_init__(self) -> None:
        for name, mask in (("positives", self.positives), ("negatives", self.negatives)):
            if mask.dtype != torch.bool or mask.dim() != 2:
                raise ValueError(f"{name} must be a boolean (B, R) tensor, got {mask.dtype} {tuple(mask.shape)}")
        if self.positives.shape != self.negatives.shape:
            raise ValueError(
                f"positives {tuple(self.positives.shape)} and negatives {tuple(self.negatives.shape)} differ in shape"
            )
        if self.degree is not None and (
            not self.degree.is_floating_point() or self.degree.shape != self.positives.shape
        ):
            raise ValueError(
                f"degree must be a floating point tensor of shape {tuple(self.positives.shape)} like positives, "
                f"got {self.degree.dtype} {tuple(self.degree.shape)}"
            )

    def includes(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return whether each pair (row, column) is positive or negative, (T,)."""
        return self.positives[rows, columns] | self.negatives[rows, columns]

    @classmethod
    def from_labels(
        cls, labels: Tensor, ref_labels: Tensor | None = None, same_item: Tensor | None = None
    ) -> "Relation":
        """Make a relation in which items with equal labels are positive and all others negative.

        Args:
            labels: Labels of the anchors, (B,).
            ref_labels: Labels of the references, (R,). Without them the batch is compared with itself, and the pair of
                an item with itself is in neither mask.
            same_item: Boolean (B, R), pairs of an item with itself; they are in neither mask.

        Examples:
            >>> Relation.from_labels(torch.tensor([4, 4, 7])).positives.int().tolist()
            [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
        """
        columns = labels if ref_labels is None else ref_labels
        positives = labels[:, None] == columns[None, :]
        return cls.without(positives, ~positives, same_item, 0 if ref_labels is None else None)

    @classmethod
    def from_matrix(cls, matrix: Tensor, same_item: Tensor | None = None, *, diagonal: bool = True) -> "Relation":
        """Make a relation from a matrix of True (positive) and False (negative), or of degrees in [0, 1].

        Args:
            matrix: Boolean or floating point, (B, R).
            same_item: Boolean (B, R), pairs of an item with itself; they are in neither mask.
            diagonal: Whether the pairs (i, i) are in neither mask.

        Raises:
            ValueError: The matrix has another type or shape, or degrees outside [0, 1].
        """
        if matrix.dim() != 2:
            raise ValueError(f"relation must have shape (B, R), got {tuple(matrix.shape)}")
        if matrix.dtype == torch.bool:
            return cls.without(matrix.clone(), ~matrix, same_item, 0 if diagonal else None)
        if not matrix.is_floating_point():
            raise ValueError(
                f"relation must be boolean or real in [0, 1], got {matrix.dtype}; use relation.bool() or .float()"
            )
        if not is_transformed() and matrix.numel() and not bool(((matrix >= 0) & (matrix <= 1)).all()):
            raise ValueError("a real-valued relation must lie in [0, 1]: 1 is positive, 0 is negative")
        masks = cls.without(matrix > 0, matrix < 1, same_item, 0 if diagonal else None)
        return cls(masks.positives, masks.negatives, matrix)

    @classmethod
    def without(
        cls, positives: Tensor, negatives: Tensor, same_item: Tensor | None = None, shift: int | None = None
    ) -> "Relation":
        """Make a relation from masks that may be changed in place, without the pairs of an item with itself.

        Args:
            positives, negatives: Boolean (B, R).
            same_item: Boolean (B, R), pairs of an item with itself.
            shift: If set, the pairs (i, i + shift) are pairs of an item with itself.
        """
        if is_transformed():
            if shift is not None:
                eye = _diagonal_mask(positives, shift)
                same_item = eye if same_item is None else same_item | eye
            if same_item is None:
                return cls(positives, negatives)
            return cls(positives & ~same_item, negatives & ~same_item)
        if shift is not None and -positives.shape[0] < shift < positives.shape[1]:
            positives.diagonal(shift).fill_(False)
            negatives.diagonal(shift).fill_(False)
        if same_item is not None:
            positives &= ~same_item
            negatives &= ~same_item
        return cls(positives, negatives)

    def upper(self) -> "Relation":
        """Keep the pairs above the diagonal (i, i) only."""
        return Relation(self.positives.triu(1), self.negatives.triu(1))

    def has_both(self) -> Tensor:
        """Return which anchors have a positive and a negative, (B,)."""
        return (count(self.positives) > 0) & (count(self.negatives) > 0)

    def contains_triplets(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Return for which anchors column `positive` is a positive and column `negative` a negative; all are (B,).

        An argmax over a row without candidates, or over NaN, returns a column that is neither.
        """
        is_positive = self.positives.gather(1, positive[:, None]).squeeze(1)
        return is_positive & self.negatives.gather(1, negative[:, None]).squeeze(1)


def _diagonal_mask(mask: Tensor, shift: int) -> Tensor:
    rows, columns = (torch.arange(size, device=mask.device) for size in mask.shape)
    return rows[:, None] + shift == columns


def tree_relation(labels: Tensor, ref_labels: Tensor | None = None, *, alpha: float = 1.0) -> Tensor:
    """Return a real-valued relation of items in a tree of labels: the share of levels that two items have in common.

    (l / L)^alpha, where the first l of L labels are equal.

    Args:
        labels: Integer labels of each item from the coarsest to the finest, (B, L).
        ref_labels: The same of the references, (R, L); by default the items themselves.
        alpha: Exponent; a larger one makes coarse levels less related.

    Returns:
        (B, R), for `relation=` of a loss.

    Raises:
        ValueError: Labels are not integers of shape (B, L), or the two have different numbers of levels.

    Examples:
        >>> tree_relation(torch.tensor([[0, 0], [0, 1], [1, 2]]))
        tensor([[1.0000, 0.5000, 0.0000],
                [0.5000, 1.0000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    others = labels if ref_labels is None else ref_labels
    for table in (labels, others):
        if table.dim() != 2 or table.is_floating_point() or table.shape[1] != labels.shape[1] or table.shape[1] == 0:
            raise ValueError(
                f"labels of a tree must be integers of shape (items, levels), got {table.dtype} {tuple(table.shape)}; "
                "kinfold.pairs.reindex turns strings into integers, one level at a time"
            )
    equal = labels[:, None, :] == others[None, :, :]
    depth = equal.long().cumprod(dim=2).sum(dim=2)  # a level counts only below equal levels
    return (depth / labels.shape[1]) ** alpha
