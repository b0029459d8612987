"""Sums over tiles, and what they are divided by."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.losses.terms import Terms


@dataclass(frozen=True)
class TileObjective:
    """What a tile contributes to the value of a loss, and what is differentiated in it.

    The value is the sum over k of sums[k] / counts[k], where sums and counts are those of the whole matrix. If the
    counts are known before the first tile, a tile contributes one number. Otherwise it contributes k numbers, and each
    is divided by its count after the last tile (`is_divided_later`).

    Attributes:
        is_mean: Whether the loss is reduced to a mean instead of a sum.
        is_whole: Whether there is one tile only, whose counts are those of the whole matrix.
        copies: How many entries of the matrix an entry of a tile stands for.
        counts: Counts of the whole matrix, (k,), if they are known.
    """

    is_mean: bool
    is_whole: bool
    copies: int
    counts: Tensor | None = None

    @property
    def is_divided_later(self) -> bool:
        """Whether the contributions still have to be divided by the counts."""
        return self.is_mean and not self.is_whole and self.counts is None

    def __call__(self, terms: Terms) -> Tensor:
        """Return the contribution of a tile, (1,) or (k,), with a graph."""
        if not self.is_mean:
            return self.copies * terms.values.sum().reshape(1)
        if self.is_whole:
            return terms.mean().reshape(1)
        if self.counts is None:
            return terms.sums
        return terms._replace(counts=self.counts.to(terms.sums) / self.copies).mean().reshape(1)


class Total:
    """The value of a loss, from the contributions of its tiles.

    Args:
        objective: What the contributions are.
    """

    def __init__(self, objective: TileObjective) -> None:
        self.objective = objective
        self._sums: Tensor | None = None
        self._counts: Tensor | None = None

    def add(self, contribution: Tensor, counts: Tensor) -> tuple[Tensor, Tensor] | None:
        """Add the contribution of a tile (k,), without a graph, and the counts of its terms (k,).

        Returns:
            What the gradients of all earlier tiles and those of this tile are multiplied with before they are added,
            (k,) each; None if they are added as they are.
        """
        self._sums = contribution if self._sums is None else self._sums + contribution
        self._counts = counts if self._counts is None else self._counts + counts
        return None

    def factors(self) -> Tensor:
        """What each of the k contributions is multiplied with in the end, (k,)."""
        assert self._sums is not None
        assert self._counts is not None
        if not self.objective.is_divided_later:
            return torch.ones_like(self._sums)
        return 1.0 / self._counts.masked_fill(self._counts <= 0, 1.0)

    def reduce(self) -> Tensor:
        """The value of the loss."""
        assert self._sums is not None
        return (self._sums * self.factors()).sum()

    def has_terms(self) -> Tensor:
        """Whether anything was counted, a boolean scalar."""
        assert self._counts is not None
        return self._counts.sum() > 0
