"""Tiles compiled by torch.compile: `kinfold.losses.compile(loss)`.

The steps of a loss on a tile are small and many. Compiled into one function they read and write the tile once. The
products stay outside: they are as fast as they can be.

A tile of a shape is compiled when it is met first. It is then computed both ways, and compiled tiles are used if they
give the same result and are faster. Tiles of other shapes, such as the last one of a batch, are computed as without a
compiler.
"""

import logging
import time
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from kinfold.losses.scoring import ScoreTile
from kinfold.losses.tile_step import TileGradient, differentiate_tile
from kinfold.losses.tile_trace import TileTensors, record
from kinfold.losses.tiles import Tile
from kinfold.losses.totals import TileObjective
from kinfold.pairs.compact_relation import CompactRelation

if TYPE_CHECKING:
    from kinfold.losses.engine import PairProgram

# Shapes that are compiled for one loss; further ones are not. A batch has one or two, and so has a smaller last batch.
MAX_SHAPES = 8
# Smaller tiles are not compiled: they take a millisecond.
MIN_PAIRS = 2**14
# how often a tile is timed each way
_TRIALS = 5
# A compiled tile must take at most this share of the time of a plain one. Two timings of the same tile differ by a few
# percent, and one of them must not decide for a compiled tile that is slower in most batches.
_GAIN = 0.95
# largest difference between a compiled tile and a plain one, relative to the length of the gradient
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9}
# Small sums, such as those over the positives of a row, are computed once for a row and not again for each of its
# entries. Indices come from this package and need no checks.
_OPTIONS: dict[str, str | int | bool | Callable[..., object]] = {
    "unroll_reductions_threshold": 1,
    "assert_indirect_indexing": False,
}
_logger = logging.getLogger(__name__)

AnyModule = TypeVar("AnyModule", bound=nn.Module)
_TileFunction = Callable[[TileTensors], TileGradient]


def compile(loss: AnyModule) -> AnyModule:
    """Let a loss compile its tiles with torch.compile.

    Values and gradients stay the same up to rounding. The first call with a batch of another size takes some seconds
    longer, see `compile_seconds`. Where there is no compiler, or where compiled tiles are not faster, the loss works as
    before. state_dict, copies and pickles are those of the loss; a copy compiles again.

    `terms` of the loss must depend on its arguments and on the options of the loss only.

    Args:
        loss: A loss, or a module that contains losses. It is changed in place.

    Returns:
        The loss itself.

    Raises:
        ValueError: The module is no loss and contains none.

    Examples:
        >>> import kinfold
        >>> loss = compile(kinfold.losses.create("multi-similarity"))
        >>> loss.compiles_tiles
        True
    """
    from kinfold.losses.loss import Loss

    losses = [module for module in loss.modules() if isinstance(module, Loss)]
    if not losses:
        raise ValueError(f"{type(loss).__name__} is no kinfold.losses.Loss and contains none: pass a loss")
    for part in losses:
        part.compiles_tiles = True
    return loss


def compile_seconds(loss: nn.Module) -> float:
    """Return how long a loss has been compiling its tiles so far, in seconds.

    Examples:
        >>> import kinfold
        >>> compile_seconds(compile(kinfold.losses.create("supcon")))  # nothing was computed yet
        0.0
    """
    return sum((_COMPILERS[part].seconds for part in loss.modules() if part in _COMPILERS), start=0.0)


class _Compiler:
    """The compiled tiles of one loss.

    Attributes:
        seconds: Time spent compiling.
        tiles: A function for each shape; None for shapes that are computed as without a compiler.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.tiles: dict[Hashable, _TileFunction | None] = {}
        self._has_warned = False

    def warn(self, name: str, reason: str) -> None:
        """Say once why tiles are not compiled."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"{name} computes tiles without a compiler: {reason}", stacklevel=2)


_COMPILERS: "weakref.WeakKeyDictionary[nn.Module, _Compiler]" = weakref.WeakKeyDictionary()


class CompiledStep:
    """Computes the tiles of one batch by compiled functions.

    Args:
        program: The loss and the batch.
        objective: What a tile contributes.
        parameters: Parameters of the loss.
        tiles: The tiles of the batch.
    """

    def __init__(
        self, program: "PairProgram", objective: TileObjective, parameters: Sequence[Tensor], tiles: Sequence[Tile]
    ) -> None:
        self._program, self._objective, self._parameters = program, objective, parameters
        self._compiler = _COMPILERS.setdefault(program.loss, _Compiler())
        self._relation = CompactRelation.from_source(program.source)
        # the first two tiles have the shape of all but the last ones
        self._shapes = {tile.shape_in(program.source) for tile in tiles[:2]}
        batch, counts = program.batch, objective.counts
        self._key = (
            _list_options(program.loss),
            (batch.symmetric, batch.anchors.shape[0]),
            (objective.is_mean, objective.is_whole, objective.copies, None if counts is None else counts.shape),
            tuple(parameter.requires_grad for parameter in parameters),
            torch.get_num_threads(),
        )

    @classmethod
    def make(
        cls, program: "PairProgram", objective: TileObjective, parameters: Sequence[Tensor], tiles: Sequence[Tile]
    ) -> "CompiledStep | None":
        """Return the compiled step of a batch; None if the loss does not compile its tiles."""
        rows, columns, _ = tiles[0].shape_in(program.source)
        is_usual = program.is_plain and program.loss.supports_chunks and program.batch.weights is None
        is_usual = is_usual and rows * columns >= MIN_PAIRS
        return cls(program, objective, parameters, tiles) if program.loss.compiles_tiles and is_usual else None

    def run(self, tile: Tile, x: Tensor, y: Tensor) -> tuple[ScoreTile, TileGradient] | None:
        """Compute a tile; None if it is to be computed without a compiler.

        Args:
            tile: The tile.
            x, y: Operands of the whole batch, (B, d) and (R, d).
        """
        if tile.shape_in(self._program.source) not in self._shapes:
            return None
        tensors = self._collect(tile, x[tile.rows], y[tile.columns])
        shapes = tuple(None if tensor is None else tensor.shape for tensor in tensors[:-1])
        key = (tile.shape_in(self._program.source), shapes, x.dtype, x.device, self._key)
        tiles = self._compiler.tiles
        if key in tiles and tiles[key] is None:
            return None
        scored = self._measure(tile, x, y)
        tensors = tensors._replace(raw=scored.raw)
        if key not in tiles:
            tiles[key] = self._compile(tile, tensors, x, y) if len(tiles) < MAX_SHAPES else None
        function = tiles[key]
        return None if function is None else (scored, function(tensors))

    def _measure(self, tile: Tile, x: Tensor, y: Tensor) -> ScoreTile:
        row, column = tile.rows.start or 0, tile.columns.start or 0
        includes = self._program.source.includes
        return self._program.loss.scoring.measure_tile(
            x[tile.rows], y[tile.columns], lambda i, j: includes(i + row, j + column)
        )

    def _collect(self, tile: Tile, x: Tensor, y: Tensor) -> TileTensors:
        """The tensors of a tile; its raw scores are still empty."""
        inputs = self._program.collect(tile, x[:0], x, y)
        classes = inputs.classes
        tensors = TileTensors(
            inputs.raw,
            inputs.x,
            inputs.y,
            inputs.labels,
            inputs.reference_labels,
            class_rows=None if classes is None else classes.index,
            # regular classes are all there
            class_exists=None if classes is None or classes.is_regular else classes.exists,
            counts=self._objective.counts,
            parameters=tuple(parameter.detach() for parameter in self._parameters),
        )
        if self._relation is None:
            relation = self._program.source.tile(tile.rows, tile.columns)
            return tensors._replace(positives=relation.positives, negatives=relation.negatives, degree=relation.degree)
        part = self._relation.tile(tile.rows, tile.columns)
        return tensors._replace(
            row_classes=part.row_classes,
            column_classes=part.column_classes,
            row_items=part.row_items,
            column_items=part.column_items,
            positive_columns=part.positive_columns,
            exists=part.exists,
        )

    def _compile(self, tile: Tile, tensors: TileTensors, x: Tensor, y: Tensor) -> _TileFunction | None:
        """Compile a tile; None if this fails, if the result differs, or if it is not faster."""
        name = type(self._program.loss).__name__

        def run_plain() -> TileGradient:
            _, inputs = self._program.read(tile, x, y)
            return differentiate_tile(self._program, inputs, self._objective, self._parameters)

        start = time.perf_counter()
        try:
            recorded = record(self._program, tile, self._objective, tensors)
            function = torch.compile(recorded.graph, fullgraph=True, dynamic=False, options=_OPTIONS)

            def run(tensors: TileTensors) -> TileGradient:
                with torch.no_grad():
                    return recorded.restore(function(*tensors.flatten()))

            compiled = run(tensors)
        except Exception as error:  # anything in the compiler and its tools
            reason = str(error).strip().split("\n")[0]
            self._compiler.warn(name, f"{type(error).__name__}: {reason}")
            return None
        finally:
            self._compiler.seconds += time.perf_counter() - start
        if not _are_close(compiled, run_plain()):
            self._compiler.warn(name, "compiled tiles give another result")
            return None
        seconds = _time([lambda: self._measure(tile, x, y) and run(tensors), run_plain])
        shape = tuple(tensors.raw.shape)
        _logger.info(
            "compiled tiles %s of %s in %.1f s; a tile takes %.2f ms, without the compiler %.2f ms",
            *(shape, name, time.perf_counter() - start, *(1e3 * part for part in seconds)),
        )
        return run if seconds[0] < _GAIN * seconds[1] else None


def _list_options(loss: nn.Module) -> tuple[tuple[str, str, str], ...]:
    """What `terms` may depend on besides tensors. It is constant in compiled tiles."""
    return tuple(
        (path, name, repr(value))
        for path, module in loss.named_modules()
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in ("number", "warn_missing_pairs", "compiles_tiles")
    )


def _are_close(compiled: TileGradient, plain: TileGradient) -> bool:
    """Whether two results of a tile agree up to rounding."""
    pairs = [(compiled.contribution, plain.contribution), (compiled.counts, plain.counts)]
    for row, plain_row in zip(compiled.slopes, plain.slopes, strict=True):
        if [slope is None for slope in row] != [slope is None for slope in plain_row]:
            return False
        pairs += [(a, b) for a, b in zip(row, plain_row, strict=True) if a is not None and b is not None]
    tolerance = _TOLERANCE.get(plain.contribution.dtype, 1e-3)
    return all(
        bool(torch.linalg.vector_norm(a.double() - b) <= tolerance * torch.linalg.vector_norm(b.double()) + 1e-12)
        for a, b in pairs
    )


def _time(works: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of each, the smallest of some turns."""
    # on one thread the time of the processor, which does not depend on what else runs on it
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds = [float("inf")] * len(works)
    for _ in range(_TRIALS):
        for position, work in enumerate(works):
            start = clock()
            work()
            seconds[position] = min(seconds[position], clock() - start)
    return seconds
