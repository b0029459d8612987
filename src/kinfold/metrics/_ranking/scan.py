"""A block of queries against chunk after chunk of the gallery: products, and the maximum of each group of columns.

A pass over maxima of 64 columns costs a small part of the product and says where candidates can be at all.
"""

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from kinfold.metrics._ranking.approximation import PAD, Approximation
from kinfold.metrics._ranking.ordering import kth_largest

MEMORY = 1 << 28  # bytes for one block of products
_COLUMNS = 1 << 16
_ROWS = 1024
_SQUARE = 512  # rows and columns of the blocks of a symmetric matrix
_GROUPS_AT_ONCE = 1 << 15
_NEIGHBOURS = 32  # columns from which on a group is one of neighbours
_SAMPLED = 8  # one of so many columns says about where the k-th largest of all is
_FLAGGED = 128  # rows whose flags stay in the processor's cache
_FIRST = 12  # so many largest values are found faster one after the other than by selection
_FARTHEST = 2.0**30  # no product of whole numbers is as large, and what is left out stands lower than minus this
_DENSE = 0.5  # share of groups with candidates above which a pass over all columns is cheaper


class Chunk:
    """Products (B, C) of a block with the columns from `start`; `whole` where these are all columns there are.

    unit: (B,) what whole numbers have to be multiplied by to be products; None where they are products themselves.
    """

    def __init__(self, start: int, products: Tensor, width: int, whole: bool, unit: Tensor | None = None) -> None:
        self.start = start
        self.products = products
        self.width = width
        self.whole = whole
        self.unit = unit

    @cached_property
    def maxima(self) -> Tensor:
        """(B, C / width) of neighbouring columns, float32."""
        return self._tops if self.unit is None else self._tops * self.unit[:, None]

    @cached_property
    def _tops(self) -> Tensor:
        """The same as whole numbers, where these are stored."""
        return _maxima(self.products, self.width)

    def _stored(self, floor: Tensor) -> Tensor:
        """At most what stands for a product of `floor` (B,)."""
        if self.unit is None:
            return torch.nextafter(floor.float(), floor.new_tensor(-torch.inf).float())
        return (floor.double() / self.unit.double()).floor_().sub_(2.0).clamp_(-_FARTHEST, _FARTHEST).to(torch.int32)

    def _read(self, stored: Tensor, row: Tensor) -> Tensor:
        return stored.float() if self.unit is None else stored * self.unit[row]

    def candidates(self, floor: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Pieces of (row, column, product) with product >= floor (B,), rows ascending; a little lower ones may be
        among them."""
        floor = self._stored(floor)
        if self.width < _NEIGHBOURS:
            yield from self._everywhere(floor)
            return
        hit = self._tops >= floor[:, None]
        if int(hit.sum()) > _DENSE * hit.numel():
            yield from self._everywhere(floor)
            return
        # flat positions throughout: one index is cheaper than two
        groups = hit.view(-1).nonzero().squeeze(1)
        segments = self.products.view(-1, self.width)
        for part in torch.split(groups, _GROUPS_AT_ONCE):
            row = part // self.maxima.shape[1]
            found = segments.index_select(0, part)
            found = found if self.unit is not None else found.float()
            place = (found >= floor[row, None]).view(-1).nonzero().squeeze(1)
            segment = place >> self.width.bit_length() - 1  # a width is a power of two
            column = (part % self.maxima.shape[1] * self.width)[segment] + (place & self.width - 1)
            row = row[segment]
            yield row, self.start + column, self._read(found.view(-1).index_select(0, place), row)

    def _everywhere(self, floor: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Candidates without asking the maxima: where most groups have some."""
        columns = self.products.shape[1]
        at_once = max(1, _GROUPS_AT_ONCE * PAD // columns)
        for first in range(0, self.products.shape[0], at_once):
            products = self.products[first : first + at_once]
            place = (products >= floor[first : first + at_once, None]).view(-1).nonzero().squeeze(1)
            row = first + place // columns
            yield row, self.start + place % columns, self._read(products.view(-1).index_select(0, place), row)


def rows_at_once(size: int, dtype: torch.dtype, memory: int = MEMORY) -> int:
    """Queries of a block against a gallery of `size` rows."""
    stored = torch.int32.itemsize if dtype == torch.int8 else dtype.itemsize
    rows = memory // max(1, min(_COLUMNS, size) * stored)
    return max(16, min(_ROWS, rows))


class Scratch:
    """Memory for products, kept from block to block: fresh pages cost as much as half a product."""

    def __init__(self) -> None:
        self._kept: dict[torch.dtype, Tensor] = {}

    def take(self, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        kept = self._kept.get(dtype)
        if kept is None or kept.numel() < rows * columns:
            kept = self._kept[dtype] = torch.empty(rows * columns, dtype=dtype, device=device)
        return kept[: rows * columns].view(rows, columns)


def symmetric_products(approximation: Approximation, memory: int) -> Tensor | None:
    """All products of a set with itself, half of them worked out; None where that does not fit, or they differ."""
    x, comparison = approximation.gallery, approximation.comparison
    fits = x.shape[0] <= _COLUMNS and x.shape[0] ** 2 * x.element_size() <= memory
    if not comparison.same or comparison.distance == "euclidean" or not fits:
        return None
    found = x.new_empty(x.shape[0], x.shape[0])
    for start in range(0, x.shape[0], _SQUARE):
        stop = min(x.shape[0], start + _SQUARE)
        approximation.product(x[start:stop], x[start:], found[start:stop, start:])
        for below in range(stop, x.shape[0], _SQUARE):
            # transposed through a piece of memory of its own, which is faster than from place to place
            found[below : below + _SQUARE, start:stop] = found[start:stop, below : below + _SQUARE].T.contiguous()
    return found


def chunks(
    approximation: Approximation,
    which: Tensor,
    exclude: Tensor | None,
    depth: int,
    scratch: Scratch,
    known: Tensor | None = None,
) -> Iterator[Chunk]:
    """The chunks of the gallery for queries `which` (B,); `exclude` (B,) is a column that each of them leaves out;
    `known` are all products, where they are known."""
    queries, size = approximation.queries[which], approximation.comparison.size
    padded = approximation.gallery.shape[0]
    width, unit = _width(min(size, _COLUMNS), depth), approximation.unit
    nowhere = -torch.inf if unit is None else torch.iinfo(torch.int32).min
    for start in range(0, padded, _COLUMNS):
        gallery = approximation.gallery[start : start + _COLUMNS]
        if known is not None and _consecutive(which):
            products = known[int(which[0]) : int(which[-1]) + 1]
        else:
            products = scratch.take(which.shape[0], gallery.shape[0], approximation.dtype, queries.device)
            if known is None:
                approximation.product(queries, gallery, products)
            else:
                torch.index_select(known, 0, which, out=products)
        if start + gallery.shape[0] > size:
            products[:, size - start :] = nowhere
        if exclude is not None:
            (row,) = ((exclude >= start) & (exclude < start + gallery.shape[0])).nonzero(as_tuple=True)
            products[row, exclude[row] - start] = nowhere
        yield Chunk(start, products, width, padded <= _COLUMNS, None if unit is None else unit[which])


def _consecutive(which: Tensor) -> bool:
    return int(which[-1]) - int(which[0]) == which.shape[0] - 1 and bool((which.diff() == 1).all())


def _maxima(products: Tensor, width: int) -> Tensor:
    if products.dtype == torch.int32:
        return products.view(products.shape[0], -1, width).amax(dim=2)
    if width == 1:
        return products.to(torch.float32, copy=True)  # the memory of the products is used again
    if width < _NEIGHBOURS:  # groups of columns far apart: maxima of few neighbours would be slow
        return products.view(products.shape[0], width, -1).amax(dim=1).float()
    groups = products.view(products.shape[0], -1, width)
    if products.dtype == torch.bfloat16:
        # the bits of positive numbers are ordered as integers are, and integers are compared five times as fast
        bits = groups.view(torch.int16).amax(dim=2)
        if int(bits.min()) >= 0:
            return bits.view(torch.bfloat16).float()
    return groups.amax(dim=2).float()


class Bound:
    """Lower bounds for the k-th largest product of each row, k up to `depth`: the k-th largest of the maxima so far.

    Where k is a large part of all columns, groups are narrow and their maxima bound loosely. A sample of the products
    then says about where the k-th is, and counting makes a bound of it.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._kept: Tensor | None = None
        self._all: Tensor | None = None

    def update(self, chunk: Chunk) -> None:
        """Take another chunk into account."""
        if chunk.whole and chunk.width < _NEIGHBOURS and chunk.unit is None:
            self._all = chunk.products
            return
        if chunk.whole:
            self._kept = chunk.maxima
            return
        seen = chunk.maxima if self._kept is None else torch.cat([self._kept, chunk.maxima], dim=1)
        self._kept = seen.topk(min(self.depth, seen.shape[1]), dim=1).values

    def kth(self, depth: int, rows: Tensor | slice = slice(None)) -> Tensor:
        """A product that at least `depth` products of a row reach, (B,); -inf where that many groups were not seen."""
        if self._all is not None:
            return _sampled_kth(self._all[rows], depth)
        assert self._kept is not None
        return _kth(self._kept[rows], depth)


def _sampled_kth(values: Tensor, k: int) -> Tensor:
    """Numbers (B,) that at least k values of each row reach, and seldom many more, (B, C)."""
    sample = values[:, ::_SAMPLED].float()
    expected = k * sample.shape[1] / values.shape[1]
    place = math.ceil(expected + 2.5 * math.sqrt(expected))  # so that few rows have to be looked at again
    if place > sample.shape[1]:
        return _kth(values.float(), k)
    found = _kth(sample, place)
    short = (_reaching(values, found) < k).nonzero().squeeze(1)
    if short.shape[0]:
        found[short] = _kth(values[short].float(), k)
    return found


def _reaching(values: Tensor, bound: Tensor) -> Tensor:
    """How many values of each row are at least `bound` (B,)."""
    # sums of float32 flags are exact up to 2^24 and ten times as fast as sums of booleans
    flags = torch.empty(_FLAGGED, values.shape[1], dtype=torch.float32, device=values.device)
    found = torch.empty(values.shape[0], dtype=torch.float32, device=values.device)
    for start in range(0, values.shape[0], _FLAGGED):
        part = values[start : start + _FLAGGED]
        reached = torch.ge(part, bound[start : start + _FLAGGED, None], out=flags[: part.shape[0]])
        torch.sum(reached, dim=1, out=found[start : start + _FLAGGED])
    return found


def _kth(values: Tensor, k: int) -> Tensor:
    if k > values.shape[1]:
        return values.new_full((values.shape[0],), -torch.inf)
    if k <= _FIRST:
        return values.topk(k, dim=1, sorted=False).values.amin(dim=1)
    return kth_largest(values, k)


def _width(columns: int, depth: int) -> int:
    """Groups as wide as leave clearly more of them than the depth is."""
    for width in (64, 32):
        if columns // width >= 1.8 * depth:
            return width
    for width in (16, 8, 4, 2):
        if columns // width >= 1.4 * depth:
            return width
    return 1
