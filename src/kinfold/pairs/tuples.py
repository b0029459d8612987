"""Mined tuples: index tensors of one length, with a mask of the valid ones."""

from dataclasses import dataclass

import torch
from torch import Tensor


def _check(valid: Tensor, **indices: Tensor) -> None:
    if valid.dtype != torch.bool or valid.dim() != 1:
        raise ValueError(f"valid must be a boolean (T,) tensor, got {valid.dtype} {tuple(valid.shape)}")
    for name, index in indices.items():
        if index.dtype != torch.int64 or index.shape != valid.shape:
            raise ValueError(
                f"{name} must be an int64 tensor of shape {tuple(valid.shape)} like valid, "
                f"got {index.dtype} {tuple(index.shape)}"
            )


@dataclass(frozen=True)
class Triplets:
    """Triplets (anchor, positive, negative) as index tensors, int64 (T,).

    A triplet whose positive is the anchor itself is allowed: only its negative pair has a gradient.

    Attributes:
        anchor: Rows of the batch.
        positive: Rows of the reference set, which is the batch itself if none was passed.
        negative: Rows of the reference set.
        valid: Boolean (T,); False where an anchor has no triplet.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor
    valid: Tensor

    def __post_init__(self) -> None:
        _check(self.valid, anchor=self.anchor, positive=self.positive, negative=self.negative)

    @classmethod
    def from_list(cls, rows: "list[tuple[int, int, int]]", device: torch.device | None = None) -> "Triplets":
        """Make triplets from a list of (anchor, positive, negative), all of them valid.

        Examples:
            >>> Triplets.from_list([(0, 1, 2)]).negative
            tensor([2])
        """
        table = torch.tensor(rows, dtype=torch.int64, device=device).reshape(-1, 3)
        valid = torch.ones(len(rows), dtype=torch.bool, device=device)
        return cls(table[:, 0], table[:, 1], table[:, 2], valid)


@dataclass(frozen=True)
class Quadruplets:
    """Triplets with a fourth item whose class is neither the anchor's nor the negative's, int64 (T,).

    Attributes:
        anchor, positive, negative, valid: As in `Triplets`.
        fourth: Rows of the reference set.
        has_fourth: Boolean (T,); False where no such item exists.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor
    fourth: Tensor
    valid: Tensor
    has_fourth: Tensor

    def __post_init__(self) -> None:
        _check(self.valid, anchor=self.anchor, positive=self.positive, negative=self.negative, fourth=self.fourth)
        _check(self.has_fourth, fourth=self.fourth)
