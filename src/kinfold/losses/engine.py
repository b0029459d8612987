"""Value and gradient of a loss from tiles of the matrix of pairs, which is never held as a whole.

A tile is a part of the rows of the matrix, or of its rows and columns. For each tile: the scores come from one product;
`Loss.terms` turns them into sums, and autograd gives the derivative of these sums by the scores; products of that
derivative with the embeddings are added to the gradient. Then the tile is dropped. A tile stays in the processor's
cache, where the many small steps of a loss cost little; a whole matrix would be written to memory and read again by
each of them. `tiles` says how the matrix is cut.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kinfold.losses.scoring import ScoreTile
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.tile_step import TileInputs
from kinfold.losses.tiled_gradient import compute_with_gradient
from kinfold.losses.tiles import Tile, keep_freed_memory, plan_classes, plan_rows, plan_triangle
from kinfold.losses.totals import TileObjective, Total
from kinfold.pairs import PairBatch, Relation
from kinfold.pairs.class_rows import ClassRows, list_first_rows
from kinfold.pairs.measures import measure_lengths
from kinfold.pairs.relation_source import ALL, LabelRelation, RelationSource

if TYPE_CHECKING:
    from kinfold.losses.loss import Loss


@dataclass(frozen=True)
class PairProgram:
    """A loss and the batch that it is called with.

    Attributes:
        loss: The loss.
        batch: The batch.
        source: Its positive and negative pairs, all of them or those that a miner selected.
        terms: Computes the terms of scored pairs; `Loss.terms` with checks.
        is_sorted: Whether the anchors are sorted by class, for a loss with `whole_classes`.
    """

    loss: "Loss"
    batch: PairBatch
    source: RelationSource
    terms: Callable[[ScoredPairs], Terms]
    is_sorted: bool = field(default=False, kw_only=True)

    @property
    def is_plain(self) -> bool:
        """Whether the terms depend on the batch and on the options of the loss only. Others are not compiled."""
        return True

    def uses_triangle(self) -> bool:
        """Whether the pairs above the diagonal determine the value."""
        return (
            self.loss.elementwise
            and self.batch.symmetric
            and self.source.is_symmetric
            and self.source.degree is None
            and self.batch.weights is None
            and self.loss.scoring.is_symmetric
        )

    def plan(self) -> list[Tile]:
        """Return the tiles that cover the matrix of pairs."""
        if self.batch.anchors.device.type == "cpu":
            keep_freed_memory()
        if not self.loss.supports_chunks:
            return [Tile()]
        if self.loss.whole_classes:
            return plan_classes(self._class_sizes(), self.source.shape[1]) if self.is_sorted else [Tile()]
        if self.uses_triangle():
            return plan_triangle(self.batch.anchors.shape[0], is_square=self.loss.compiles_tiles and self.is_plain)
        return plan_rows(self.batch.anchors.shape[0], self.batch.references.shape[0])

    def _class_sizes(self) -> list[int]:
        assert self.batch.labels is not None
        sizes: list[int] = torch.unique_consecutive(self.batch.labels, return_counts=True)[1].tolist()
        return sizes

    def _sort_by_class(self, x: Tensor, y: Tensor) -> tuple["PairProgram", Tensor, Tensor]:
        """Return the program with the anchors of each class together, and its operands in the same order.

        Classes stay in the order of their first anchors: results do not depend on what the labels are.
        """
        assert isinstance(self.source, LabelRelation)
        assert self.batch.labels is not None
        order = list_first_rows(self.source.labels).argsort(stable=True)
        source, anchors = self.source.reorder(order), x.index_select(0, order)
        references = anchors if self.batch.symmetric else y
        batch = replace(
            self.batch,
            anchors=anchors.detach(),
            references=references.detach(),
            source=source,
            labels=self.batch.labels[order],
            weights=None if self.batch.weights is None else self.batch.weights[order],
        )
        return replace(self, batch=batch, source=source, is_sorted=True), anchors, references

    def read(self, tile: Tile, x: Tensor, y: Tensor) -> tuple[ScoreTile, TileInputs]:
        """Compute the raw scores of a tile, without a graph, and collect what its terms are computed from.

        Args:
            tile: The tile.
            x, y: Operands of the whole batch, (B, d) and (R, d).
        """
        relation = tile.select(self.source)
        rows, columns = x[tile.rows], y[tile.columns]
        scored = self.loss.scoring.measure_tile(rows, columns, relation.includes)
        return scored, self.collect(tile, scored.raw, rows, columns, relation)

    def collect(self, tile: Tile, raw: Tensor, x: Tensor, y: Tensor, relation: Relation | None = None) -> TileInputs:
        """Add what is known about the rows of a tile to its raw scores, relation and operands."""
        if tile.is_upper or tile.columns != ALL:  # parts of rows are for elementwise losses, which use nothing else
            return TileInputs(raw, relation)
        labels = None if self.batch.labels is None else self.batch.labels[tile.rows, None]
        classes = None
        if self.is_sorted and self.batch.symmetric and labels is not None and self.batch.ids is None:
            classes = ClassRows.from_labels(list_first_rows(labels.squeeze(1)))
        reference_labels = self.batch.labels if self.batch.symmetric else self.batch.ref_labels
        weights = None if self.batch.weights is None else self.batch.weights[tile.rows]
        return TileInputs(raw, relation, x, y, labels, reference_labels, classes, weights)

    def evaluate(self, inputs: TileInputs) -> Terms:
        """Compute the terms of a tile."""
        raw, relation, x, y, labels, reference_labels, classes, weights = inputs
        assert relation is not None
        scores = self.loss.scoring.to_scores(raw)
        if scores.numel() == 0:
            return Terms.over(_empty_values(self.loss.kind, scores), 0)
        options: dict[str, Any] = {
            "anchors": x,
            "references": y,
            "labels": labels,
            "reference_labels": reference_labels,
            "classes": classes,
            "symmetric": self.batch.symmetric,
            "batch_size": self.batch.anchors.shape[0],
            "anchor_weights": weights,
            "lengths": measure_lengths(self.batch.anchors) if self.loss.uses_lengths else None,
        }
        is_pair = self.loss.kind == "pair"
        if relation.degree is None:
            pair_weights = weights[:, None] if is_pair and weights is not None else None
            masks = relation.positives, relation.negatives
            return self._weigh(self.terms(ScoredPairs(scores, *masks, weights=pair_weights, **options)), weights)
        nothing, degree = torch.zeros_like(relation.positives), relation.degree.to(scores)
        if self.loss.graded:
            is_related = degree > 0
            masks = relation.positives & is_related, relation.negatives & ~is_related
            return self._weigh(self.terms(ScoredPairs(scores, *masks, degree=degree, **options)), weights)
        # a pair of degree r is counted twice: r as positive, 1 - r as negative
        positives = torch.stack([relation.positives, nothing])
        negatives = torch.stack([nothing, relation.negatives])
        pair_weights = torch.stack([degree, 1.0 - degree]) * (1.0 if weights is None else weights[:, None])
        scores = torch.stack([scores, scores])
        terms = self.terms(ScoredPairs(scores, positives, negatives, weights=pair_weights, **options))
        return terms._replace(values=terms.values.sum(dim=0))

    @staticmethod
    def _weigh(terms: Terms, weights: Tensor | None) -> Terms:
        return terms if weights is None else terms.weight_by(weights)

    def evaluate_whole(self, x: Tensor, y: Tensor) -> Terms:
        """Compute the terms of the whole matrix with a graph back to the operands."""
        relation = self.source.tile()
        raw = self.loss.scoring.measure_matrix(x, y, relation)
        return self.evaluate(self.collect(Tile(), raw, x, y, relation))

    def compute(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the reduced value of the loss and whether there was anything to reduce.

        Args:
            x, y: Operands of the whole batch, (B, d) and (R, d); the same tensor if a batch is compared with itself.

        Returns:
            The mean or sum, differentiable by the operands and by the parameters of the loss, and a boolean scalar.
        """
        if self.loss.whole_classes and isinstance(self.source, LabelRelation) and not self.is_sorted and len(x):
            program, x, y = self._sort_by_class(x, y)
            return program.compute(x, y)
        x, y = self.loss.scoring.center_operands(x, y)
        parameters = [parameter for name, parameter in self.loss.named_parameters() if name != "proxies"]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, y, *parameters)):
            return compute_with_gradient(self, x, y, parameters)
        tiles = self.plan()
        total = self.make_total(tiles)
        for tile in tiles:
            terms = self.evaluate(self.read(tile, x, y)[1])
            total.add(total.objective(terms), terms.counts)
        return total.reduce(), total.has_terms()

    def make_total(self, tiles: list[Tile]) -> Total:
        """Return what adds up the value from the contributions of the tiles."""
        is_mean, is_whole = self.loss.reduction == "mean" or self.loss.kind == "batch", len(tiles) == 1
        is_known = is_mean and not is_whole and self.source.degree is None and self.batch.weights is None
        counts = self.loss.counts(self.source) if is_known else None
        # an entry above the diagonal stands for two
        return Total(TileObjective(is_mean, is_whole, copies=2 if tiles[0].is_upper else 1, counts=counts))


def _empty_values(kind: str, scores: Tensor) -> Tensor:
    """Differentiable zeros in the shape of the values, for a batch or a reference set without rows."""
    if kind == "pair":
        return scores
    return scores.sum(dim=-1) if kind == "anchor" else scores.sum()
