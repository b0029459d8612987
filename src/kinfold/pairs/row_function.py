"""Functions of rows or entries whose derivatives are computed together with their values."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs.fast_function import FastFunction, Tensors, Wanted


class RowResult(NamedTuple):
    """Values of rows and their derivatives.

    Attributes:
        values: One value for each row, (B,), or for each entry, (B, R).
        slopes: Derivative of the value of a row or an entry by its entries, (B, R), or by the columns listed, (B, W).
        columns: (B, W), if all other derivatives are zero. A column may occur twice.
    """

    values: Tensor
    slopes: Tensor
    columns: Tensor | None = None


PlainRows: TypeAlias = Callable[[Tensor], Tensor]
FastRows: TypeAlias = Callable[[Tensor], RowResult]


def compute_rows(entries: Tensor, fast: FastRows, plain: PlainRows) -> Tensor:
    """Compute a function of each row, (B,), or of each entry, (B, R).

    Args:
        entries: (B, R).
        fast: Returns values and slopes, without autograd.
        plain: Computes the same values with plain operations, for second derivatives and for `torch.func`.
    """
    values: Tensor = _RowFunction(fast, plain)(entries)
    return values


class _RowFunction(FastFunction):
    def __init__(self, fast: FastRows, plain: PlainRows) -> None:
        self._fast, self._plain = fast, plain

    def compute(self, inputs: tuple[Tensor], wanted: Wanted) -> tuple[Tensor, Tensors]:
        values, slopes, columns = self._fast(inputs[0])
        return values, [slopes, columns]

    def differentiate(self, inputs: tuple[Tensor], kept: Tensors, outer: tuple[Tensor], wanted: Wanted) -> Tensors:
        slopes, columns = kept
        assert slopes is not None
        gradient = slopes * (outer[0] if outer[0].dim() == slopes.dim() else outer[0][:, None])
        return [gradient if columns is None else torch.zeros_like(inputs[0]).scatter_add_(1, columns, gradient)]

    def compute_plainly(self, entries: Tensor) -> Tensor:
        return self._plain(entries)
