"""Products of a block of queries with chunk after chunk of the gallery, and the candidates among them.

The maxima of groups of columns cost a small part of the product, and show where candidates can be at all.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.fast_products import FastProducts

_MAX_INT8_PRODUCT = 2.0**30  # no int32 product of int8 rows is larger; excluded columns are below minus this


class ProductChunk:
    """Products of a block of queries with some columns of the gallery.

    Args:
        start: The first column.
        products: (B, C).
        width: The number of columns in a group.
        is_complete: Whether these are all columns of the gallery.
        int8_scale: The factor of int32 products, (B,); None for other types.
    """

    def __init__(
        self, start: int, products: Tensor, width: int, is_complete: bool, int8_scale: Tensor | None = None
    ) -> None:
        self.start = start
        self.products = products
        self.width = width
        self.is_complete = is_complete
        self.int8_scale = int8_scale

    @cached_property
    def maxima(self) -> Tensor:
        """The largest product of each group of columns, (B, C / width) float32."""
        return self._stored_maxima if self.int8_scale is None else self._stored_maxima * self.int8_scale[:, None]

    @cached_property
    def _stored_maxima(self) -> Tensor:
        """The same without the scale of int8 products."""
        return _compute_maxima(self.products, self.width)

    def find_candidates(self, floor: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (row, column, product) of all products of at least `floor` (B,), and of some that are a little lower.

        Rows are ascending.
        """
        floor = self._to_stored(floor)
        if self.width < tuning.MIN_ADJACENT_WIDTH:
            yield from self._scan_all_columns(floor)
            return
        has_candidate = self._stored_maxima >= floor[:, None]
        if int(has_candidate.sum()) > tuning.DENSE_GROUPS * has_candidate.numel():
            yield from self._scan_all_columns(floor)
            return
        # flat positions throughout: one index is cheaper than two
        groups = has_candidate.view(-1).nonzero().squeeze(1)
        segments = self.products.view(-1, self.width)
        for part in torch.split(groups, tuning.GROUPS_PER_PASS):
            row = part // self.maxima.shape[1]
            stored = segments.index_select(0, part)
            stored = stored if self.int8_scale is not None else stored.float()
            position = (stored >= floor[row, None]).view(-1).nonzero().squeeze(1)
            segment = position >> self.width.bit_length() - 1  # a width is a power of two
            column = (part % self.maxima.shape[1] * self.width)[segment] + (position & self.width - 1)
            row = row[segment]
            yield row, self.start + column, self._from_stored(stored.view(-1).index_select(0, position), row)

    def _scan_all_columns(self, floor: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield candidates without looking at the maxima: for chunks in which most groups have one."""
        columns = self.products.shape[1]
        step = max(1, tuning.GROUPS_PER_PASS * tuning.GALLERY_PADDING // columns)
        for first in range(0, self.products.shape[0], step):
            products = self.products[first : first + step]
            position = (products >= floor[first : first + step, None]).view(-1).nonzero().squeeze(1)
            row = first + position // columns
            stored = products.view(-1).index_select(0, position)
            yield row, self.start + position % columns, self._from_stored(stored, row)

    def _to_stored(self, floor: Tensor) -> Tensor:
        """Convert products (B,) to the type in which they are stored, rounded down."""
        if self.int8_scale is None:
            return torch.nextafter(floor.float(), floor.new_tensor(-torch.inf).float())
        stored = (floor.double() / self.int8_scale.double()).floor_().sub_(2.0)
        return stored.clamp_(-_MAX_INT8_PRODUCT, _MAX_INT8_PRODUCT).to(torch.int32)

    def _from_stored(self, stored: Tensor, row: Tensor) -> Tensor:
        return stored.float() if self.int8_scale is None else stored * self.int8_scale[row]


class BufferPool:
    """Memory for products that is reused from block to block: new pages cost as much as half a product."""

    def __init__(self) -> None:
        self._buffers: dict[torch.dtype, Tensor] = {}

    def take(self, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a matrix with undefined values; it is valid until the next call with the same type."""
        buffer = self._buffers.get(dtype)
        if buffer is None or buffer.numel() < rows * columns:
            buffer = self._buffers[dtype] = torch.empty(rows * columns, dtype=dtype, device=device)
        return buffer[: rows * columns].view(rows, columns)


def choose_block_size(size: int, dtype: torch.dtype, memory_limit: int) -> int:
    """Return the number of queries of a block against a gallery of `size` rows."""
    itemsize = torch.int32.itemsize if dtype == torch.int8 else dtype.itemsize
    rows = memory_limit // max(1, min(tuning.COLUMNS_PER_CHUNK, size) * itemsize)
    return max(tuning.MIN_QUERIES_PER_BLOCK, min(tuning.MAX_QUERIES_PER_BLOCK, rows))


def multiply_symmetric(products: FastProducts, memory_limit: int) -> Tensor | None:
    """Return all products (N', N') of a set with itself, half of them copied from the other half.

    None if they do not fit into the memory limit, or are not symmetric.
    """
    x, query_gallery = products.gallery, products.query_gallery
    fits = x.shape[0] <= tuning.COLUMNS_PER_CHUNK and x.shape[0] ** 2 * x.element_size() <= memory_limit
    if not query_gallery.is_same_set or query_gallery.has_distances or not fits:
        return None
    matrix, tile = x.new_empty(x.shape[0], x.shape[0]), tuning.SYMMETRIC_TILE
    for start in range(0, x.shape[0], tile):
        stop = min(x.shape[0], start + tile)
        products.multiply(x[start:stop], x[start:], matrix[start:stop, start:])
        for below in range(stop, x.shape[0], tile):
            # transposing through a contiguous copy is faster than from matrix to matrix
            matrix[below : below + tile, start:stop] = matrix[start:stop, below : below + tile].T.contiguous()
    return matrix


def scan_gallery(
    products: FastProducts,
    query_ids: Tensor,
    exclude: Tensor | None,
    depth: int,
    buffers: BufferPool,
    all_products: Tensor | None = None,
) -> Iterator[ProductChunk]:
    """Yield the chunks of the gallery for a block of queries.

    Args:
        products: The rounded rows.
        query_ids: (B,).
        exclude: A gallery index (B,) that each query leaves out, -1 for none; or None.
        depth: The number of ranks that are needed; it determines the width of the groups.
        buffers: Memory for the products.
        all_products: All products (N', N'), if they were computed beforehand.
    """
    queries, size = products.queries[query_ids], products.query_gallery.size
    padded_size, columns = products.gallery.shape[0], tuning.COLUMNS_PER_CHUNK
    width, int8_scale = _choose_width(min(size, columns), depth), products.int8_scale
    minimum = -torch.inf if int8_scale is None else torch.iinfo(torch.int32).min
    for start in range(0, padded_size, columns):
        gallery = products.gallery[start : start + columns]
        if all_products is not None and _is_consecutive(query_ids):
            block = all_products[int(query_ids[0]) : int(query_ids[-1]) + 1]
        else:
            block = buffers.take(query_ids.shape[0], gallery.shape[0], products.dtype, queries.device)
            if all_products is None:
                products.multiply(queries, gallery, block)
            else:
                torch.index_select(all_products, 0, query_ids, out=block)
        if start + gallery.shape[0] > size:
            block[:, size - start :] = minimum
        if exclude is not None:
            (row,) = ((exclude >= start) & (exclude < start + gallery.shape[0])).nonzero(as_tuple=True)
            block[row, exclude[row] - start] = minimum
        yield ProductChunk(
            start, block, width, padded_size <= columns, None if int8_scale is None else int8_scale[query_ids]
        )


def _is_consecutive(ids: Tensor) -> bool:
    return int(ids[-1]) - int(ids[0]) == ids.shape[0] - 1 and bool((ids.diff() == 1).all())


def _compute_maxima(products: Tensor, width: int) -> Tensor:
    if products.dtype == torch.int32:
        return products.view(products.shape[0], -1, width).amax(dim=2)
    if width == 1:
        return products.to(torch.float32, copy=True)  # the memory of the products is reused
    if width < tuning.MIN_ADJACENT_WIDTH:  # groups of columns that are far apart
        return products.view(products.shape[0], width, -1).amax(dim=1).float()
    groups = products.view(products.shape[0], -1, width)
    if products.dtype == torch.bfloat16:
        # the bits of positive numbers are ordered as integers are, and integers are compared five times as fast
        bits = groups.view(torch.int16).amax(dim=2)
        if int(bits.min()) >= 0:
            return bits.view(torch.bfloat16).float()
    return groups.amax(dim=2).float()


def _choose_width(columns: int, depth: int) -> int:
    """Return the widest groups that are clearly more than the ranks that are needed."""
    for width, groups_per_rank in tuning.GROUP_WIDTHS:
        if columns // width >= groups_per_rank * depth:
            return width
    return 1
