"""Checks, normalization and gathering of embedding rows."""

from collections.abc import Iterator

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning


def check_rows(rows: Tensor, name: str) -> None:
    """Raise a ValueError that names the first bad row if `rows` is not a matrix of finite numbers."""
    if not isinstance(rows, Tensor) or rows.dim() != 2:
        shape = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(f"{name} must be a matrix (rows, features), got {shape}")
    if rows.is_complex():
        raise ValueError(f"{name} must be real numbers, got {rows.dtype}")
    for start in range(0, rows.shape[0], tuning.ROWS_PER_CHECK):
        # a sum is finite exactly if all entries are, unless it overflows: then look at the entries
        part = rows[start : start + tuning.ROWS_PER_CHECK]
        if bool(part.sum(dim=1).isfinite().all()):
            continue
        bad = ~part.isfinite().all(dim=1)
        if bool(bad.any()):
            row = start + int(bad.nonzero()[0])
            raise ValueError(
                f"row {row} (counted from 0) of {name} holds NaN or infinite values "
                f"({int(bad.sum()):,} such from there on): "
                "find out why the model returned them, or leave those rows out"
            )


def normalize_rows(x: Tensor) -> Tensor:
    """Scale rows (N, d) to length one in float64; zero rows stay zero. The only normalization of the metrics.

    A row is normalized by itself: the result does not depend on other rows. A row whose length is one up to the
    rounding of its type stays as it is, so that normalizing twice changes nothing.
    """
    unit = x
    for start in range(0, x.shape[0], tuning.ROWS_PER_CHECK):
        part = x[start : start + tuning.ROWS_PER_CHECK].contiguous()  # a row is summed in one order wherever it is
        length: Tensor = torch.linalg.vector_norm(part, dim=1, keepdim=True, dtype=torch.float64)
        keep = (length - 1.0).abs() < 4 * torch.finfo(x.dtype).eps
        if bool(keep.all()):
            continue
        rows = part.double()
        extreme = (length < 1e-150) | (length > 1e150)  # squares underflowed or overflowed
        if bool(extreme.any()):
            largest = rows.abs().amax(dim=1, keepdim=True)
            rows = rows / torch.where(extreme & (largest > 0), largest, 1.0)
            length = torch.where(extreme, torch.linalg.vector_norm(rows, dim=1, keepdim=True), length)
        if unit is x:
            unit = x.clone()
        divisor = torch.where(keep | (length == 0), 1.0, length)
        unit[start : start + tuning.ROWS_PER_CHECK] = (rows / divisor).to(x.dtype)
    return unit


def gather_row_pairs(
    lefts: Tensor, rights: Tensor, i: Tensor, j: Tensor, entries: int
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows lefts[i[t]] and rights[j[t]], about `entries` numbers of each at a time.

    The buffers of one step are overwritten in the next.
    """
    d = lefts.shape[1]
    step = max(1, min(i.shape[0], entries // max(1, d)))
    # index_select into existing memory is three times as fast as indexing
    left, right = lefts.new_empty(step, d), rights.new_empty(step, d)
    for start in range(0, i.shape[0], step):
        part = slice(start, min(start + step, i.shape[0]))
        x, y = left[: part.stop - start], right[: part.stop - start]
        torch.index_select(lefts, 0, i[part], out=x)
        torch.index_select(rights, 0, j[part], out=y)
        yield part, x, y
