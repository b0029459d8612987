"""Rows rounded to the type of a fast product, with the error of the rounding."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning


@dataclass(frozen=True)
class RoundedRows:
    """Rounded rows and how far they are from the original ones.

    Args:
        rows: (N, d'), for the Euclidean distance with three more columns for the squared length.
        norm: The length of each original row, (N,) float64.
        error: The distance of each rounded row from the original one, (N,) float64.
        lost_length: The most that was lost of a squared length.
        scale: The factor of int8 rows, (N,) float64; None for other types.
    """

    rows: Tensor
    norm: Tensor
    error: Tensor
    lost_length: float = 0.0
    scale: Tensor | None = None


def round_rows(rows: Tensor, dtype: torch.dtype) -> RoundedRows:
    """Round rows (N, d) to a floating-point type."""
    rounded = rows.to(dtype)
    norm: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    if dtype == rows.dtype or dtype == torch.float64:
        return RoundedRows(rounded, norm, torch.zeros_like(norm))
    # the difference of a number and its rounding is a number of the same type: it is computed without error
    error = torch.empty_like(norm)
    for part in _split(rows.shape[0]):
        error[part] = torch.linalg.vector_norm(rows[part] - rounded[part], dim=1, dtype=torch.float64)
    return RoundedRows(rounded, norm, error)


def round_centered_rows(rows: Tensor, center: Tensor, dtype: torch.dtype, as_query: bool) -> RoundedRows:
    """Round rows minus their center so that a product is 2 x.y - |y|^2, which orders a gallery as -|x - y|^2 does.

    Queries become (2 x, 1, 1, 1) and gallery rows (y, and -|y|^2 as the sum of three numbers).
    """
    n, d = rows.shape
    rounded = torch.empty(n, d + 3, dtype=dtype, device=rows.device)
    norm = torch.empty(n, dtype=torch.float64, device=rows.device)
    error = torch.empty_like(norm)
    lost = 0.0
    for part in _split(n):
        exact = rows[part].double() - center
        squared = exact.square().sum(dim=1)
        if as_query:
            exact *= 2.0
        close = exact.to(dtype)
        rounded[part, :d] = close
        norm[part] = torch.linalg.vector_norm(exact, dim=1)
        error[part] = torch.linalg.vector_norm(exact.sub_(close), dim=1)
        if as_query:
            rounded[part, d:] = 1.0
            norm[part] = (norm[part].square() + 3.0).sqrt()
            continue
        norm[part] = (norm[part].square() + squared.square()).sqrt() * 1.01
        rest = squared.neg()
        for column in range(d, d + 3):
            rounded[part, column] = rest.to(dtype)
            rest = rest - rounded[part, column].double()
        lost = max(lost, float(rest.abs().max()))
    return RoundedRows(rounded, norm, error, lost)


def round_to_int8(rows: Tensor, shared_scale: bool = False) -> RoundedRows:
    """Round rows (N, d) to scale * integers from -127 to 127, each row with its own scale or all with one."""
    rounded = torch.empty(rows.shape, dtype=torch.int8, device=rows.device)
    largest = rows.abs().amax(dim=1).double()
    if shared_scale:
        largest = largest.max().expand_as(largest)
    scale = torch.where(largest > 0, largest / 127, 1.0)
    norm, error = torch.empty_like(scale), torch.empty_like(scale)
    step = max(1, tuning.INT8_ENTRIES_PER_ROUNDING // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        part = slice(start, start + step)
        exact = rows[part].double()
        close = (exact / scale[part, None]).round_()
        rounded[part] = close.to(torch.int8)
        norm[part] = torch.linalg.vector_norm(exact, dim=1)
        error[part] = torch.linalg.vector_norm(exact.sub_(close.mul_(scale[part, None])), dim=1)
    return RoundedRows(rounded, norm, error, scale=scale)


def compute_squared_lengths(rows: Tensor, center: Tensor) -> Tensor:
    """Return |row - center|^2 of each row, (N,) float64."""
    lengths = torch.empty(rows.shape[0], dtype=torch.float64, device=rows.device)
    for part in _split(rows.shape[0]):
        lengths[part] = (rows[part].double() - center).square().sum(dim=1)
    return lengths


def _split(rows: int) -> list[slice]:
    step = tuning.ROWS_PER_ROUNDING
    return [slice(start, start + step) for start in range(0, rows, step)]
