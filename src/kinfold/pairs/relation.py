"""Who is kin of whom: a boolean matrix of positives and one of negatives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.pairs.masks import count
from kinfold.pairs.transforms import is_transformed


@dataclass(frozen=True)
class Relation:
    """Positives and negatives (B, R), boolean; a pair in neither is ignored.

    `degree` (B, R) is there only for a real-valued relation: a pair of degree r counts r as kin and 1 - r as other, so
    it stands in both masks where 0 < r < 1.
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
        """Say of each pair (row, column) whether it is a positive or a negative one, (T,)."""
        return self.positives[rows, columns] | self.negatives[rows, columns]

    @classmethod
    def from_labels(cls, labels: Tensor, ref_labels: Tensor | None = None, same: Tensor | None = None) -> "Relation":
        """Kin are items with equal labels. Without `ref_labels` the batch meets itself and the diagonal is excluded.

        `same` (B, R): pairs that are one and the same item, excluded from both masks.

        >>> Relation.from_labels(torch.tensor([4, 4, 7])).positives.int().tolist()
        [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
        """
        against = labels if ref_labels is None else ref_labels
        kin = labels[:, None] == against[None, :]
        return cls._without(same, kin, ~kin, diagonal=ref_labels is None)

    @classmethod
    def from_matrix(cls, matrix: Tensor, same: Tensor | None = None, *, diagonal: bool = True) -> "Relation":
        """Kin by a (B, R) matrix: True or False, or a real degree in [0, 1]. `diagonal` excludes the pairs (i, i)."""
        if matrix.dim() != 2:
            raise ValueError(f"relation must have shape (B, R), got {tuple(matrix.shape)}")
        if matrix.dtype == torch.bool:
            return cls._without(same, matrix.clone(), ~matrix, diagonal=diagonal)
        if not matrix.is_floating_point():
            raise ValueError(
                f"relation must be boolean or real in [0, 1], got {matrix.dtype}; use relation.bool() or .float()"
            )
        if not is_transformed() and matrix.numel() and not bool(((matrix >= 0) & (matrix <= 1)).all()):
            raise ValueError("a real-valued relation must lie in [0, 1]: 1 for kin, 0 for others")
        masks = cls._without(same, matrix > 0, matrix < 1, diagonal=diagonal)
        return cls(masks.positives, masks.negatives, matrix)

    @classmethod
    def _without(cls, same: Tensor | None, positives: Tensor, negatives: Tensor, *, diagonal: bool) -> "Relation":
        if is_transformed():
            if diagonal:
                itself = torch.eye(*positives.shape, dtype=torch.bool, device=positives.device)
                same = itself if same is None else same | itself
            return cls(positives, negatives) if same is None else cls(positives & ~same, negatives & ~same)
        # both masks are fresh tensors of ours, so they are changed in place
        if diagonal:
            positives.fill_diagonal_(False)
            negatives.fill_diagonal_(False)
        if same is not None:
            positives &= ~same
            negatives &= ~same
        return cls(positives, negatives)

    def has_both(self) -> Tensor:
        """(B,) True for anchors that have a positive and a negative."""
        return (count(self.positives) > 0) & (count(self.negatives) > 0)

    def contains(self, positive: Tensor, negative: Tensor) -> Tensor:
        """(B,) True for anchors whose column `positive` (B,) is a positive and whose column `negative` is a negative.

        What a search by distance gives where there is no such column, or where distances are NaN, is neither.
        """
        is_positive = self.positives.gather(1, positive[:, None]).squeeze(1)
        return is_positive & self.negatives.gather(1, negative[:, None]).squeeze(1)
