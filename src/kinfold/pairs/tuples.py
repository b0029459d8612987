"""Mined tuples: index tensors of fixed length, one tuple per anchor, with a mask of those that exist."""

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
    """(anchor, positive, negative), int64 (T,); `valid` is False where an anchor found none.

    `anchor` counts rows of the batch; `positive` and `negative` count rows of the reference set, which is the batch
    itself where none was given. (a, a, n) is legal: it has no pull, only push.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor
    valid: Tensor

    def __post_init__(self) -> None:
        _check(self.valid, anchor=self.anchor, positive=self.positive, negative=self.negative)

    @classmethod
    def of(cls, rows: "list[tuple[int, int, int]]", device: torch.device | None = None) -> "Triplets":
        """Triplets from a list of (anchor, positive, negative), all valid.

        >>> Triplets.of([(0, 1, 2)]).negative
        tensor([2])
        """
        table = torch.tensor(rows, dtype=torch.int64, device=device).reshape(-1, 3)
        valid = torch.ones(len(rows), dtype=torch.bool, device=device)
        return cls(table[:, 0], table[:, 1], table[:, 2], valid)


@dataclass(frozen=True)
class Quadruplets:
    """Triplets with a `fourth` item of a third class; `has_fourth` is False where none exists."""

    anchor: Tensor
    positive: Tensor
    negative: Tensor
    fourth: Tensor
    valid: Tensor
    has_fourth: Tensor

    def __post_init__(self) -> None:
        _check(self.valid, anchor=self.anchor, positive=self.positive, negative=self.negative, fourth=self.fourth)
        _check(self.has_fourth, fourth=self.fourth)
