"""Value and gradient of a loss in one pass over the tiles of its matrix of pairs."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kinfold.losses.compiled_tiles import CompiledStep
from kinfold.losses.scoring import ScoreTile
from kinfold.losses.tile_step import TileGradient, differentiate_tile
from kinfold.losses.tiles import Tile
from kinfold.losses.totals import TileObjective, Total

if TYPE_CHECKING:
    from kinfold.losses.engine import PairProgram


def compute_with_gradient(
    program: "PairProgram", x: Tensor, y: Tensor, parameters: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Compute what `PairProgram.compute` does, differentiable by the operands and the parameters."""
    value, has_terms = _Tiled.apply(program, x, None if y is x else y, *parameters)  # type: ignore[no-untyped-call]
    return value, has_terms


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, program: "PairProgram", x: Tensor, y: Tensor | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.wanted = ctx.needs_input_grad[1:]
        with torch.enable_grad():
            total, gradients = _accumulate(
                program, x.detach(), None if y is None else y.detach(), parameters, ctx.wanted
            )
        ctx.program = program
        ctx.save_for_backward(x, y, *parameters, *gradients)
        value, has_terms = total.reduce(), total.has_terms()
        ctx.mark_non_differentiable(has_terms)
        return value, has_terms

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        number = len(ctx.wanted)
        inputs, gradients = ctx.saved_tensors[:number], ctx.saved_tensors[number:]
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated: this needs the whole matrix
            return None, *_differentiate_whole(ctx.program, inputs, ctx.wanted, outer[0])
        return None, *[None if gradient is None else gradient * outer[0] for gradient in gradients]


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
                [_make_zeros(t) if w and t is not None else None for t, w in zip(inputs, wanted, strict=True)]
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


def _make_zeros(like: Tensor) -> Tensor:
    """Zeros; of up to 4096 rows, whose columns are contiguous, the product of a transposed tile is added faster.

    At 12,288 x 128 this took a seventh longer instead.
    """
    is_short = like.dim() == 2 and len(like) <= 4096
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


def _differentiate_whole(
    program: "PairProgram", inputs: Sequence[Tensor | None], wanted: Sequence[bool], outer: Tensor
) -> Iterator[Tensor | None]:
    """Gradients by x, y and the parameters, with a graph."""
    # views, so that the gradients of x and y are separate if they are one tensor
    x, y = (None if t is None else t.view_as(t) for t in inputs[:2])
    assert x is not None
    terms = program.evaluate_whole(x, x if y is None else y)
    is_mean = program.loss.reduction == "mean" or program.loss.kind == "batch"
    value = terms.mean() if is_mean else terms.values.sum()
    leaves = [t if w else None for t, w in zip((x, y, *inputs[2:]), wanted, strict=True)]
    requested = [leaf for leaf in leaves if leaf is not None]
    slopes = iter(torch.autograd.grad(value, requested, outer, create_graph=True, allow_unused=True))
    return (None if leaf is None else next(slopes) for leaf in leaves)
