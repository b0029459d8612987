"""Tiles: how the matrix of pairs is cut.

- A loss of kind "anchor" needs all pairs of an anchor: some rows, all columns.
- A loss of kind "pair" also gets part of the columns. If its values depend on score and sign alone (`elementwise`) and
  a batch is compared with itself, the pairs (i, j) and (j, i) have the same value, and the tiles cover the upper
  triangle only.
- A loss that needs all anchors of a class at once (`whole_classes`) gets the rows sorted by class, and no class is cut.
- A loss of the whole batch that cannot be added up from rows gets one tile, and so do small batches. If a batch is
  compared with itself, the gradient is then (G + G^T) X: one product instead of two.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch

from kinfold.pairs import Relation
from kinfold.pairs.relation_source import ALL, RelationSource

# Pairs in a tile: 4 MB in float32. Each tile takes about a millisecond besides its arithmetic. At 4096 x 128 on one
# thread supcon took 1.24 floors with 2^18 pairs, 1.01 with 2^19, 0.94 with 2^20, 0.90 with 2^21; ranked-list, which
# holds more matrices, 1.87, 1.79, 1.57 and 1.70.
TILE_PAIRS = 2**20
# fewer rows make slow products, and each tile adds to a gradient as large as the references
MIN_ROWS = 64
# matrices up to this size stay whole: the gradient of a whole symmetric matrix takes one product less
WHOLE_PAIRS = 2**20
# Size of an allocation that makes the C library keep as much freed memory, see `keep_freed_memory`. glibc looks at
# allocations below 32 MB only.
_KEPT_BYTES = 31 * 2**20
# Rows of a tile of the upper triangle. 640 x 1024 in tiles of 160 rows took 0.47 floors for its products, 0.63 as one.
TRIANGLE_ROWS = 160


class Tile(NamedTuple):
    """A part of the matrix of pairs.

    Attributes:
        rows, columns: Its place in the matrix.
        is_upper: Whether only its pairs above the diagonal are used.
    """

    rows: slice = ALL
    columns: slice = ALL
    is_upper: bool = False

    def shape_in(self, source: RelationSource) -> tuple[int, int, bool]:
        """Return its number of rows and of columns, and `is_upper`."""
        rows, columns = (len(range(*part.indices(size))) for part, size in zip(self[:2], source.shape, strict=True))
        return rows, columns, self.is_upper

    def select(self, source: RelationSource) -> Relation:
        """Return the relation of this tile."""
        relation = source.tile(self.rows, self.columns)
        return relation.upper() if self.is_upper else relation


@cache
def keep_freed_memory() -> None:
    """Make the C library keep the memory of freed tiles for the next ones, instead of returning it to the system.

    glibc keeps up to twice the largest block that was freed so far. Without this, tiles of 2^20 pairs of a 4096 x 128
    batch caused 20,000 to 50,000 page faults, a tenth of the time.
    """
    torch.empty(_KEPT_BYTES, dtype=torch.uint8)


def plan_rows(rows: int, columns: int) -> list[Tile]:
    """Cut a matrix into tiles of whole rows; a small one stays whole."""
    size = max(MIN_ROWS, TILE_PAIRS // max(1, columns))
    if rows * columns <= WHOLE_PAIRS or rows <= size:
        return [Tile()]
    return [Tile(slice(start, min(start + size, rows))) for start in range(0, rows, size)]


def plan_classes(sizes: Sequence[int], columns: int) -> list[Tile]:
    """Cut a matrix whose rows are sorted by class into tiles of whole classes; a small one stays whole.

    Args:
        sizes: Number of rows of each class.
        columns: Number of columns.
    """
    rows = sum(sizes)
    limit = max(MIN_ROWS, TILE_PAIRS // max(1, columns))
    if rows * columns <= WHOLE_PAIRS or rows <= limit:
        return [Tile()]
    ends = [0]
    for end in accumulate(sizes):
        if end == rows or end - ends[-1] >= limit:
            ends.append(end)
    return [Tile(slice(start, end)) for start, end in pairwise(ends)]


def plan_triangle(size: int, *, is_square: bool = False) -> list[Tile]:
    """Cut the upper triangle of a square matrix into tiles; a small matrix stays whole.

    Args:
        size: Rows and columns of the matrix.
        is_square: Whether tiles are square, so that nearly all have the same shape.
    """
    rows = TRIANGLE_ROWS
    if size < 2 * rows:
        return [Tile()]
    if is_square:
        rows = rows if size * size <= WHOLE_PAIRS else math.isqrt(TILE_PAIRS)
        return list(_triangle(size, rows, rows))
    width = max(rows, TILE_PAIRS // rows)
    return list(_triangle(size, rows, width))


def _triangle(size: int, rows: int, width: int) -> Iterator[Tile]:
    for start in range(0, size, rows):
        part = slice(start, min(start + rows, size))
        # the tile on the diagonal reaches to the next multiple of the width, so that no narrow tile is left over
        for column in range(start, size, width):
            yield Tile(part, slice(column, min(column + width, size)), is_upper=column == start)
