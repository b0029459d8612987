"""A block of queries against chunk after chunk of the gallery: products, and the maximum of each group of columns.

A pass over maxima of 64 columns costs a small part of the product and says where candidates can be at all.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from kinfold.metrics.approximation import PAD, Approximation

MEMORY = 1 << 28  # bytes for one block of products
_COLUMNS = 1 << 16
_ROWS = 1024
_GROUPS_AT_ONCE = 1 << 15


class Chunk:
    """Products (B, C) of a block with the columns from `start`; `whole` where these are all columns there are."""

    def __init__(self, start: int, products: Tensor, width: int, whole: bool) -> None:
        self.start = start
        self.products = products
        self.width = width
        self.whole = whole

    @cached_property
    def maxima(self) -> Tensor:
        """(B, C / width) of neighbouring columns, float32."""
        return _maxima(self.products, self.width)

    def candidates(self, floor: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Pieces of (row, column, product) with product >= floor (B,), rows ascending."""
        floor = torch.nextafter(floor.float(), floor.new_tensor(-torch.inf).float())
        row, group = (self.maxima >= floor[:, None]).nonzero(as_tuple=True)
        segments = self.products.view(-1, self.width)
        for rows, groups in zip(row.split(_GROUPS_AT_ONCE), group.split(_GROUPS_AT_ONCE), strict=True):
            found = segments[rows * self.maxima.shape[1] + groups].float()
            segment, lane = (found >= floor[rows, None]).nonzero(as_tuple=True)
            yield rows[segment], self.start + groups[segment] * self.width + lane, found[segment, lane]


def rows_at_once(approximation: Approximation, memory: int = MEMORY) -> int:
    columns = min(_COLUMNS, approximation.gallery.shape[0])
    rows = memory // max(1, columns * approximation.queries.element_size())
    return max(16, min(_ROWS, rows))


class Scratch:
    """Memory for products, kept from block to block: fresh pages cost as much as half a product."""

    def __init__(self) -> None:
        self._kept: dict[torch.dtype, Tensor] = {}

    def take(self, rows: int, columns: int, like: Tensor) -> Tensor:
        kept = self._kept.get(like.dtype)
        if kept is None or kept.numel() < rows * columns:
            kept = self._kept[like.dtype] = like.new_empty(rows * columns)
        return kept[: rows * columns].view(rows, columns)


def chunks(
    approximation: Approximation, which: Tensor, exclude: Tensor | None, depth: int, scratch: Scratch
) -> Iterator[Chunk]:
    """The chunks of the gallery for queries `which` (B,); `exclude` (B,) is a column that each of them leaves out."""
    queries, size = approximation.queries[which], approximation.comparison.size
    padded = approximation.gallery.shape[0]
    width = _width(min(size, _COLUMNS), depth)
    for start in range(0, padded, _COLUMNS):
        gallery = approximation.gallery[start : start + _COLUMNS]
        products = scratch.take(which.shape[0], gallery.shape[0], queries)
        torch.mm(queries, gallery.T, out=products)
        if start + gallery.shape[0] > size:
            products[:, size - start :] = -torch.inf
        if exclude is not None:
            (row,) = ((exclude >= start) & (exclude < start + gallery.shape[0])).nonzero(as_tuple=True)
            products[row, exclude[row] - start] = -torch.inf
        yield Chunk(start, products, width, padded <= _COLUMNS)


def _maxima(products: Tensor, width: int) -> Tensor:
    if width == 1:
        return products.to(torch.float32, copy=True)  # the memory of the products is used again
    groups = products.view(products.shape[0], -1, width)
    if products.dtype == torch.bfloat16:
        # the bits of positive numbers are ordered as integers are, and integers are compared five times as fast
        bits = groups.view(torch.int16).amax(dim=2)
        if int(bits.min()) >= 0:
            return bits.view(torch.bfloat16).float()
    return groups.amax(dim=2).float()


class Bound:
    """A lower bound for the depth-th largest product of each row: the depth-th largest of the maxima seen so far."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._kept: Tensor | None = None

    def update(self, maxima: Tensor) -> Tensor:
        """(B,) after these maxima too; -inf while there are fewer than depth."""
        seen = maxima if self._kept is None else torch.cat([self._kept, maxima], dim=1)
        if seen.shape[1] <= self.depth:
            self._kept = seen
            full = seen.shape[1] == self.depth
            return seen.amin(dim=1) if full else seen.new_full((seen.shape[0],), -torch.inf)
        if self._kept is None and seen.shape[1] < 2 * _COLUMNS:
            self._kept = seen  # one pass is enough where there is one chunk only
            return seen.kthvalue(seen.shape[1] - self.depth + 1, dim=1).values
        self._kept = seen.topk(self.depth, dim=1, sorted=True).values
        return self._kept[:, -1]


def _width(columns: int, depth: int) -> int:
    for width in (PAD, PAD // 2):
        if columns // width >= 1.8 * depth:
            return width
    return 1
