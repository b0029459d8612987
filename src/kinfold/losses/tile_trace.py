"""One tile as a function of tensors alone, recorded for a compiler.

`differentiate_tile` takes objects. A compiler needs a function of tensors: `TileSignature` says what these tensors are
and which numbers are constants in the recorded function, and `record` runs `differentiate_tile` once to record it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from kinfold.losses.tile_step import TileGradient, TileInputs, differentiate_tile
from kinfold.losses.tiles import Tile
from kinfold.losses.totals import TileObjective
from kinfold.pairs import Relation
from kinfold.pairs.class_rows import ClassRows
from kinfold.pairs.masks import set_columns
from kinfold.pairs.relation_source import LabelRelation
from kinfold.pairs.transforms import tracing

if TYPE_CHECKING:
    from kinfold.losses.engine import PairProgram


class TileTensors(NamedTuple):
    """The tensors of a tile; None for what there is not.

    Attributes:
        raw: Raw scores, (r, c).
        x, y: Operands of the rows (r, d) and of the columns (c, d).
        labels, reference_labels: Labels of the rows (r, 1) and of the columns (c,) for the loss.
        row_classes, column_classes: Small integers (r,) and (c,), equal for positive pairs.
        row_items, column_items: Small integers (r,) and (c,), equal for pairs of an item with itself.
        positive_columns, exists: Columns among which the positives are, and which of them are, (r, W).
        positives, negatives, degree: Masks and degrees (r, c), if there are no classes.
        class_rows, class_exists: Of `ClassRows`, (C, M); the second is None for regular ones.
        counts: Of the objective, (k,).
        parameters: Of the loss.
    """

    raw: Tensor
    x: Tensor | None = None
    y: Tensor | None = None
    labels: Tensor | None = None
    reference_labels: Tensor | None = None
    row_classes: Tensor | None = None
    column_classes: Tensor | None = None
    row_items: Tensor | None = None
    column_items: Tensor | None = None
    positive_columns: Tensor | None = None
    exists: Tensor | None = None
    positives: Tensor | None = None
    negatives: Tensor | None = None
    degree: Tensor | None = None
    class_rows: Tensor | None = None
    class_exists: Tensor | None = None
    counts: Tensor | None = None
    parameters: tuple[Tensor, ...] = ()

    def flatten(self) -> list[Tensor]:
        """List the tensors that exist."""
        return [tensor for tensor in (*self[:-1], *self.parameters) if tensor is not None]

    def unflatten(self, tensors: Sequence[Tensor]) -> "TileTensors":
        """Replace the tensors that exist by others: the reverse of `flatten`."""
        remaining: Iterator[Tensor] = iter(tensors)
        names = [name for name, tensor in zip(self._fields[:-1], self, strict=False) if tensor is not None]
        present = {name: next(remaining) for name in names}
        return self._replace(**present, parameters=tuple(remaining))

    def make_relation(self, *, is_upper: bool) -> Relation:
        """Compute the masks, with known columns of the positives."""
        if self.row_classes is None:
            assert self.positives is not None
            assert self.negatives is not None
            relation = Relation(self.positives, self.negatives, self.degree)
        else:
            source = LabelRelation(self.row_classes, self.column_classes, self.row_items, self.column_items)
            relation = source.tile()
        relation = relation.upper() if is_upper else relation
        if self.positive_columns is not None and self.exists is not None:
            set_columns(relation.positives, self.positive_columns, self.exists)
        return relation


class RecordedTile(NamedTuple):
    """A recorded tile.

    Attributes:
        graph: Takes the flattened tensors and returns a list: contribution, counts, and the slopes that exist.
        layout: For each of the k numbers which of its slopes exist.
    """

    graph: torch.fx.GraphModule
    layout: list[list[bool]]

    def restore(self, outputs: Sequence[Tensor]) -> TileGradient:
        """Make the result of a tile from what the graph returns."""
        slopes = iter(outputs[2:])
        return TileGradient(
            outputs[0], outputs[1], [[next(slopes) if exists else None for exists in row] for row in self.layout]
        )


def record(program: "PairProgram", tile: Tile, objective: TileObjective, tensors: TileTensors) -> RecordedTile:
    """Run one tile and record its operations.

    Args:
        program: The loss and its batch, of which only sizes and options are recorded.
        tile: The tile.
        objective: What the tile contributes.
        tensors: The tensors of the tile.
    """
    layout: list[list[bool]] = []
    names = [name for name, _ in program.loss.named_parameters() if name != "proxies"]

    def run(*flat: Tensor) -> list[Tensor]:
        parts = tensors.unflatten(flat)
        parameters = [part.detach().requires_grad_() for part in parts.parameters]
        values = {f"loss.{name}": parameter for name, parameter in zip(names, parameters, strict=True)}
        call = _TileModule(program, replace(objective, counts=parts.counts), parameters)
        result: TileGradient = torch.func.functional_call(call, values, (parts, tile.is_upper))
        layout[:] = [[slope is not None for slope in row] for row in result.slopes]
        slopes = [slope for row in result.slopes for slope in row if slope is not None]
        return [result.contribution, result.counts, *slopes]

    with tracing(), torch.enable_grad():
        graph = make_fx(run)(*tensors.flatten())
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return RecordedTile(graph, layout)


class _TileModule(nn.Module):
    """`differentiate_tile` as a module, so that the parameters of the loss can be replaced by recorded ones."""

    def __init__(self, program: "PairProgram", objective: TileObjective, parameters: Sequence[Tensor]) -> None:
        super().__init__()
        self.loss = program.loss
        self._call = program, objective, parameters

    def forward(self, tensors: TileTensors, is_upper: bool) -> TileGradient:
        program, objective, parameters = self._call
        return differentiate_tile(program, _make_inputs(tensors, is_upper), objective, parameters)


def _make_inputs(tensors: TileTensors, is_upper: bool) -> TileInputs:
    """Make the inputs of a tile from its tensors."""
    classes = None
    if tensors.class_rows is not None:
        is_regular = tensors.class_exists is None
        exists = torch.ones_like(tensors.class_rows, dtype=torch.bool) if is_regular else tensors.class_exists
        assert exists is not None
        classes = ClassRows(tensors.class_rows, exists, is_regular)
    relation = tensors.make_relation(is_upper=is_upper)
    labels, reference_labels = tensors.labels, tensors.reference_labels
    return TileInputs(tensors.raw, relation, tensors.x, tensors.y, labels, reference_labels, classes)
