"""Value and gradient of a loss in one pass over the tiles of its matrix of pairs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kinfold.losses.compiled_tiles import CompiledStep
from kinfold.losses.scoring import ScoreTile
from kinfold.losses.tile_step import TileGradient, differentiate_tile
from kinfold.losses.tiles import Tile
from kinfold.losses.totals import TileObjective, Total
from kinfold.pairs.fast_function import FastFunction, Tensors, Wanted

if TYPE_CHECKING:
    from kinfold.losses.engine import PairProgram


def compute_with_gradient(
    program: "PairProgram", x: Tensor, y: Tensor, parameters: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Compute what `PairProgram.compute` does, differentiable by the operands and the parameters."""
    tiled = _Tiled(program)
    value = tiled(x, None if y is x else y, *parameters)
    return value, tiled.has_terms


class _Tiled(FastFunction):
    """The value of a batch.

    Attributes:
        has_terms: Whether the last value has terms.
    """

    num_arguments = 2
    has_terms: Tensor

    def __init__(self, program: "PairProgram") -> None:
        self._program = program

    def compute(self, inputs: Any, wanted: Wanted) -> tuple[Tensor, Tensors]:
        x, y, *parameters = inputs
        with torch.enable_grad():
            total, gradients = _accumulate(
                self._program, x.detach(), None if y is None else y.detach(), parameters, wanted
            )
        self.has_terms = total.has_terms()
        return total.reduce(), gradients

    def differentiate(self, inputs: Any, kept: Tensors, outer: tuple[Tensor], wanted: Wanted) -> Tensors:
        return [None if gradient is None else gradient * outer[0] for gradient in kept]

    def compute_plainly(self, x: Tensor, y: Tensor | None, *parameters: Tensor) -> Tensor:
        """Needs the whole matrix."""
        terms = self._program.evaluate_whole(x, x if y is None else y)
        is_mean = self._program.loss.reduction == "mean" or self._program.loss.kind == "batch"
        return terms.mean() if is_mean else terms.values.sum()


def _accumulate(
    program: "PairProgram", x: Tensor, y: Tensor | None, parameters: Sequence[Tensor], wanted: Sequence[bool]
) -> tuple[Total, list[Tensor | None]]:
    """Sum values over all tiles, and gradients by x, by y if it is not x, and by the parameters."""
    tiles = program.plan()
    total = program.make_total(tiles)
    inputs: list[Tensor | None] = [x, y, *parameters]
    gradients: list[list[Tensor | None]] = []  # [k][input]
    compiled = CompiledStep.make(program, total.objective, parameters, tiles)
    for tile in tiles:
        scored, result = _differentiate(program, tile, total.objective, compiled, inputs)
        factors = total.add(result.contribution, result.counts)
        if not gradients:
            gradients = [
                [
                    _make_zeros(t, len(tiles)) if w and t is not None else None
                    for t, w in zip(inputs, wanted, strict=True)
                ]
                for _ in result.slopes
            ]
        for k, (slopes, sums) in enumerate(zip(result.slopes, gradients, strict=True)):
            if factors is not None:
                _scale(sums, factors[0][k])
                _scale(slopes, factors[1][k])
            _add(program, tile, scored, slopes, sums, is_symmetric=y is None)
        del scored, result, slopes  # their memory is for the next tile
    return total, _combine(gradients, total.factors())


def _differentiate(
    program: "PairProgram",
    tile: Tile,
    objective: TileObjective,
    compiled: CompiledStep | None,
    inputs: Sequence[Tensor | None],
) -> tuple[ScoreTile, TileGradient]:
    """Compute the scores of a tile and what it adds, compiled if possible."""
    x, y, *parameters = inputs
    assert x is not None
    columns = x if y is None else y
    output = None if compiled is None else compiled.run(tile, x, columns)
    if output is not None:
        return output
    scored, tile_inputs = program.read(tile, x, columns)
    return scored, differentiate_tile(program, tile_inputs, objective, [p for p in parameters if p is not None])


def _make_zeros(like: Tensor, num_tiles: int) -> Tensor:
    """Zeros; of up to 4096 rows, whose columns are contiguous, the product of a transposed tile is added faster.

    At 12,288 x 128 this took a seventh longer instead, and so does the copy back where there is one tile.
    """
    is_short = like.dim() == 2 and len(like) <= 4096 and num_tiles > 1
    return like.new_zeros(like.shape[::-1]).T if is_short else torch.zeros_like(like)


@torch.no_grad()
def _scale(tensors: Sequence[Tensor | None], factor: Tensor) -> None:
    for tensor in tensors:
        if tensor is not None:
            tensor.mul_(factor)


@torch.no_grad()
def _add(
    program: "PairProgram",
    tile: Tile,
    scored: ScoreTile,
    slopes: Sequence[Tensor | None],
    gradients: list[Tensor | None],
    *,
    is_symmetric: bool,
) -> None:
    """Add the gradients of one tile, given those by its raw scores, its operands and the parameters."""
    by_scores, by_rows, by_columns, *by_parameters = slopes
    x_gradient, y_gradient, *remaining = gradients
    if is_symmetric:
        y_gradient = x_gradient
    if tile != Tile():  # one gradient that is both stays one tensor
        x_gradient = None if x_gradient is None else x_gradient[tile.rows]
        y_gradient = None if y_gradient is None else y_gradient[tile.columns]
    if by_scores is not None:
        program.loss.scoring.add_gradients(scored, by_scores, x_gradient, y_gradient)
    sums = x_gradient, y_gradient, *remaining
    for slope, gradient in zip((by_rows, by_columns, *by_parameters), sums, strict=True):
        if slope is not None and gradient is not None:
            gradient += slope


def _combine(gradients: list[list[Tensor | None]], factors: Tensor) -> list[Tensor | None]:
    """The sum over k of the gradients times their factors; the gradients are changed."""
    combined = gradients[0]
    _scale(combined, factors[0])
    for parts, factor in zip(gradients[1:], factors[1:], strict=True):
        for total, part in zip(combined, parts, strict=True):
            if total is not None and part is not None:
                total.addcmul_(part, factor)
    return [None if total is None else total.contiguous() for total in combined]
