"""Robust losses of large batches: the weights from passes over tiles of pair losses, then value and gradient.

Sets that give weight to few pairs end with a list: the scores of these pairs are computed again, with a graph, and the
backward pass is a gather of their rows. The other sets end with a weight for every loss, and one more pass over the
tiles adds up the gradient.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from kinfold.dro.log_mean_exp import LogMeanExpTotal
from kinfold.dro.stream import LossTile, PairList, Solver
from kinfold.losses import tiles as tiling
from kinfold.losses.engine import PairProgram
from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.losses.scoring import ScoreTile
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.tile_step import TileInputs
from kinfold.losses.tiles import Tile
from kinfold.losses.totals import Total
from kinfold.pairs.masks import count, mask_to_float, narrow, union

if TYPE_CHECKING:
    from kinfold.losses import Loss

_Losses: TypeAlias = tuple[Tile, Tensor, Tensor, Tensor]  # of a tile: losses, positives, negatives

# A first guess is taken from a sample of some rows and columns, of whose losses so many are used. Where few pairs have
# weight, a small share of a large batch holds too few of them: the chi-square ball of 32,768 rows gives weight to 2 of
# 2^14 losses, and a guess from them was wrong, so that many more passes were needed.
_SAMPLE_ROWS = 512
_SAMPLE_LOSSES = 2**14
_SAMPLE_SHARE = 2**-10
_MOST_SAMPLE_LOSSES = 2**20


@dataclass(frozen=True)
class PairGroup:
    """A group of pairs with the solver of its weights.

    Attributes:
        solver: Finds the weights.
        select: Returns the mask of the group from the masks of positives and negatives.
        factor: Weight of the group in the value.
    """

    solver: Solver
    select: Callable[[Tensor, Tensor], Tensor]
    factor: float


@dataclass(frozen=True)
class TemperedGroup:
    """A group of pairs whose value is gamma log mean exp(l / gamma).

    Attributes:
        gamma: Its temperature.
        select: As in `PairGroup`.
        factor: Weight of the group in the value.
    """

    gamma: float
    select: Callable[[Tensor, Tensor], Tensor]
    factor: float


def select_all(positives: Tensor, negatives: Tensor) -> Tensor:
    """Mask of the group of all pairs."""
    return union(positives, negatives)


def select_positives(positives: Tensor, negatives: Tensor) -> Tensor:
    """Mask of the group of positive pairs."""
    return positives


def select_negatives(positives: Tensor, negatives: Tensor) -> Tensor:
    """Mask of the group of negative pairs."""
    return negatives


@dataclass(frozen=True)
class RobustStream:
    """The pair losses of a batch, tile by tile.

    Attributes:
        outer: The robust loss with its batch.
        pair_loss: The loss of a pair.
        drop_zero_losses: Whether pairs with loss zero belong to no group.
    """

    outer: PairProgram
    pair_loss: "Loss"
    drop_zero_losses: bool
    _kept: dict[object, tuple[ScoreTile, TileInputs]] = field(default_factory=dict)

    @property
    def inner(self) -> PairProgram:
        """The pair loss with the batch."""
        outer = self.outer
        return _PairLossProgram(
            self.pair_loss, outer.batch, outer.source, self.pair_loss.terms, is_sorted=outer.is_sorted
        )

    def count_copies(self) -> int:
        """How many entries of the matrix of pairs an entry of a tile stands for."""
        return 2 if self.inner.plan()[0].is_upper else 1

    def solve(self, x: Tensor, y: Tensor, groups: list[PairGroup]) -> None:
        """Find the weights of all groups."""
        with torch.no_grad():
            x, y = self.pair_loss.scoring.center_operands(x, y)
            is_small = x.shape[0] * y.shape[0] <= tiling.WHOLE_PAIRS
            tiles = list(self._read_tiles(x, y)) if is_small else None
            if any(group.solver.needs_sample for group in groups):
                self._start(tiles, x, y, groups)
            while not all(group.solver.finished for group in groups):
                for tile, losses, positives, negatives in tiles or self._read_tiles(x, y):
                    for group in groups:
                        if not group.solver.finished:
                            mask = group.select(positives, negatives)
                            position = tile.rows.start or 0, tile.columns.start or 0
                            group.solver.add(LossTile(losses, mask, *position))
                for group in groups:
                    if not group.solver.finished:
                        group.solver.end_pass()

    def _start(self, tiles: list[_Losses] | None, x: Tensor, y: Tensor, groups: list[PairGroup]) -> None:
        """Give the solvers a first guess, from losses that are at hand or from a sample."""
        sample, share = self._read_sample(x, y) if tiles is None else (tiles, 1.0 / self.count_copies())
        for group in groups:
            losses = torch.cat([part[group.select(*masks)] for _, part, *masks in sample])
            step = max(1, losses.shape[0] // _count_sample(x.shape[0] * y.shape[0]))
            losses = losses[::step]
            group.solver.start(losses, share / step)

    def read(self, tile: Tile, x: Tensor, y: Tensor) -> tuple[ScoreTile, TileInputs]:
        """Compute the scores of a tile as `PairProgram.read` does; those of a small batch are kept for the next one."""
        if x.shape[0] * y.shape[0] > tiling.WHOLE_PAIRS:
            return self.inner.read(tile, x, y)
        position = tile.rows.start, tile.columns.start
        if position not in self._kept:
            self._kept[position] = self.inner.read(tile, x, y)
        return self._kept[position]

    def evaluate(self, inputs: TileInputs) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the losses of a tile, and the masks of positives and negatives that belong to a group."""
        assert inputs.relation is not None
        return self._drop_zeros(
            self.inner.evaluate(inputs).values, inputs.relation.positives, inputs.relation.negatives
        )

    def _read_tiles(self, x: Tensor, y: Tensor) -> Iterator[_Losses]:
        for tile in self.inner.plan():
            yield tile, *self.evaluate(self.read(tile, x, y)[1])

    def _read_sample(self, x: Tensor, y: Tensor) -> tuple[list[_Losses], float]:
        """Losses and masks of some rows with some columns, and the share of all pairs that they are."""
        generator = torch.Generator().manual_seed(0)
        most = max(_SAMPLE_ROWS, math.isqrt(_count_sample(len(x) * len(y))))
        rows, columns = (torch.randperm(size, generator=generator)[:most].to(x.device) for size in (len(x), len(y)))
        relation = self.outer.source.index(rows, columns)
        scored = self.pair_loss.scoring.measure_tile(x[rows], y[columns], relation.includes)
        labels = None if self.outer.batch.labels is None else self.outer.batch.labels[rows, None]
        scores = self.pair_loss.scoring.to_scores(scored.raw)
        pairs = ScoredPairs(scores, relation.positives, relation.negatives, labels=labels)
        values = self.pair_loss.terms(pairs).values
        share = rows.shape[0] * columns.shape[0] / max(1, x.shape[0] * y.shape[0])
        return [(Tile(), *self._drop_zeros(values, relation.positives, relation.negatives))], share

    def _drop_zeros(self, losses: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.drop_zero_losses:
            is_nonzero = losses.detach().bool()
            positives, negatives = narrow(positives, is_nonzero), narrow(negatives, is_nonzero)
        return losses, positives, negatives

    def reduce(self, x: Tensor, y: Tensor, groups: list[PairGroup], tempered: list[TemperedGroup]) -> Tensor:
        """Compute the robust value, differentiable by the operands and the parameters; `groups` are solved."""
        lists = [(group, group.solver.take_pairs()) for group in groups]
        value = x.new_zeros(())
        for group, pairs in lists:
            if pairs is not None:
                value = value + group.factor * self._reduce_list(x, y, pairs)
        outer = self.outer
        common = outer.loss, outer.batch, outer.source, outer.terms, self
        if tempered:
            value = value + _TemperedProgram(*common, tempered).compute(x, y)[0]
        dense = [group for group, pairs in lists if pairs is None]
        if dense:
            weighted, _ = _WeightedProgram(*common, dense, len(self.inner.plan())).compute(x, y)
            exact = sum(group.factor * group.solver.value for group in dense)
            value = value + weighted + (exact - weighted).detach()
        return value

    def _reduce_list(self, x: Tensor, y: Tensor, pairs: PairList) -> Tensor:
        """Weighted sum of the losses of listed pairs."""
        if pairs.rows.shape[0] == 0:
            return (x[:0].sum() + y[:0].sum()) * 0.0
        scores = self.pair_loss.scoring.to_scores(self.pair_loss.scoring.measure_pairs(x, y, pairs.rows, pairs.columns))
        positives = self.outer.source.are_positive(pairs.rows, pairs.columns)[None]
        labels = None if self.outer.batch.labels is None else self.outer.batch.labels[pairs.rows][None]
        scored = ScoredPairs(scores[None], positives, ~positives, labels=labels)
        return (self.pair_loss.terms(scored).values.squeeze(0) * pairs.weights.to(scores)).sum()


def _count_sample(pairs: int) -> int:
    """How many losses are used of a sample of so many pairs."""
    return min(_MOST_SAMPLE_LOSSES, max(_SAMPLE_LOSSES, int(pairs * _SAMPLE_SHARE)))


@dataclass(frozen=True)
class _PairLossProgram(PairProgram):
    """The pair loss of a stream, whose tiles are read for values alone."""

    @property
    def is_plain(self) -> bool:
        return False


@dataclass(frozen=True)
class _StreamProgram(PairProgram):
    """A robust value as a sum over tiles of pair losses."""

    stream: RobustStream

    @property
    def is_plain(self) -> bool:
        return False  # weights and groups belong to this batch

    def plan(self) -> list[Tile]:
        return self.stream.inner.plan()

    def read(self, tile: Tile, x: Tensor, y: Tensor) -> tuple[ScoreTile, TileInputs]:
        return self.stream.read(tile, x, y)

    def evaluate(self, inputs: TileInputs) -> Terms:
        return self.evaluate_losses(*self.stream.evaluate(inputs))

    def evaluate_losses(self, losses: Tensor, positives: Tensor, negatives: Tensor) -> Terms:
        """Compute the terms of the pair losses of a tile."""
        raise NotImplementedError

    def evaluate_whole(self, x: Tensor, y: Tensor) -> Terms:
        return self.stream.outer.evaluate_whole(x, y)


@dataclass(frozen=True)
class _WeightedProgram(_StreamProgram):
    """The sum of pair losses with the weights that solved groups give them; the weights carry no gradient."""

    groups: list[PairGroup]
    num_tiles: int

    def evaluate_losses(self, losses: Tensor, positives: Tensor, negatives: Tensor) -> Terms:
        weights = torch.zeros_like(losses)
        for group in self.groups:
            mask = mask_to_float(group.select(positives, negatives), losses)
            weights += group.solver.weigh(losses.detach()).mul_(mask).mul_(group.factor * group.solver.copies)
        value = torch.linalg.vecdot(weights, losses).sum()
        return Terms(value, value.reshape(1), losses.new_full((1,), 1.0 / self.num_tiles))


@dataclass(frozen=True)
class _TemperedProgram(_StreamProgram):
    """The sum over groups of gamma log mean exp(l / gamma)."""

    groups: list[TemperedGroup]

    def make_total(self, tiles: list[Tile]) -> Total:
        return LogMeanExpTotal([group.factor * group.gamma for group in self.groups])

    def evaluate_losses(self, losses: Tensor, positives: Tensor, negatives: Tensor) -> Terms:
        row = losses.reshape(1, -1)
        masks = [group.select(positives, negatives).reshape(1, -1) for group in self.groups]
        levels = [
            masked_logsumexp(row, mask, 1.0 / group.gamma) for group, mask in zip(self.groups, masks, strict=True)
        ]
        return Terms(losses, torch.cat(levels), torch.cat([count(mask) for mask in masks]).to(losses))
