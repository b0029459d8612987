"""Value and gradient of a loss from tiles of the matrix of pairs, which is never held as a whole.

A tile is a part of the rows of the matrix, or of its rows and columns. For each tile: the scores come from one product;
`Loss.terms` turns them into sums, and autograd gives the derivative of these sums by the scores; products of that
derivative with the embeddings are added to the gradient. Then the tile is dropped. A tile stays in the processor's
cache, where the many small steps of a loss cost little; a whole matrix would be written to memory and read again by
each of them. `tiles` says how the matrix is cut.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kinfold.losses.scoring import ScoreTile
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.tiles import Tile, plan_classes, plan_rows, plan_triangle
from kinfold.pairs import PairBatch, Relation
from kinfold.pairs.class_rows import ClassRows, list_first_rows
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

    def uses_triangle(self) -> bool:
        """Whether the pairs above the diagonal determine the value."""
        return (
            self.loss.elementwise
            and self.batch.symmetric
            and self.source.is_symmetric
            and self.source.degree is None
            and self.loss.scoring.is_symmetric
        )

    def plan(self) -> list[Tile]:
        """Return the tiles that cover the matrix of pairs."""
        if not self.loss.supports_chunks:
            return [Tile()]
        if self.loss.whole_classes:
            return plan_classes(self._class_sizes(), self.source.shape[1]) if self.is_sorted else [Tile()]
        if self.uses_triangle():
            return plan_triangle(self.batch.anchors.shape[0])
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
        )
        return replace(self, batch=batch, source=source, is_sorted=True), anchors, references

    def measure(self, tile: Tile, x: Tensor, y: Tensor) -> tuple[ScoreTile, Relation]:
        """Compute the raw scores of a tile, without a graph, and its relation."""
        relation = tile.select(self.source)
        return self.loss.scoring.measure_tile(x[tile.rows], y[tile.columns], relation), relation

    def evaluate(self, tile: Tile, raw: Tensor, relation: Relation, x: Tensor, y: Tensor) -> Terms:
        """Compute the terms of a tile from its raw scores.

        Args:
            tile: The tile.
            raw: Its raw scores, (r, c).
            relation: Its positive and negative pairs.
            x, y: Operands of its rows (r, d) and of its columns (c, d).
        """
        scores = self.loss.scoring.to_scores(raw)
        if scores.numel() == 0:
            return Terms.over(_empty_values(self.loss.kind, scores), 0)
        labels = None if self.batch.labels is None else self.batch.labels[tile.rows, None]
        is_part = tile.is_upper or tile.columns != ALL
        options: dict[str, Any] = {"symmetric": self.batch.symmetric, "batch_size": self.batch.anchors.shape[0]}
        if not is_part:  # parts of rows are for elementwise losses, which use nothing else
            reference_labels = self.batch.labels if self.batch.symmetric else self.batch.ref_labels
            options |= {"anchors": x, "references": y, "labels": labels, "reference_labels": reference_labels}
        if self.is_sorted and self.batch.symmetric and labels is not None and self.batch.ids is None:
            options["classes"] = ClassRows.from_labels(list_first_rows(labels.squeeze(1)))
        if relation.degree is None:
            return self.terms(ScoredPairs(scores, relation.positives, relation.negatives, **options))
        nothing, degree = torch.zeros_like(relation.positives), relation.degree.to(scores)
        if self.loss.graded:
            is_related = degree > 0
            masks = relation.positives & is_related, relation.negatives & ~is_related
            return self.terms(ScoredPairs(scores, *masks, degree=degree, **options))
        # a pair of degree r is counted twice: r as positive, 1 - r as negative
        positives = torch.stack([relation.positives, nothing])
        negatives = torch.stack([nothing, relation.negatives])
        weights = torch.stack([degree, 1.0 - degree])
        terms = self.terms(ScoredPairs(torch.stack([scores, scores]), positives, negatives, weights=weights, **options))
        return terms._replace(values=terms.values.sum(dim=0))

    def evaluate_whole(self, x: Tensor, y: Tensor) -> Terms:
        """Compute the terms of the whole matrix with a graph back to the operands."""
        relation = self.source.tile()
        return self.evaluate(Tile(), self.loss.scoring.measure_matrix(x, y, relation), relation, x, y)

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
        if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, y, *parameters))):
            total = _Total(self)
            for tile in total.tiles:
                scored, relation = self.measure(tile, x, y)
                total.add(self.evaluate(tile, scored.raw, relation, x[tile.rows], y[tile.columns]))
            return total.reduce(), total.has_terms()
        other = None if y is x else y
        value, has_terms = _Tiled.apply(self, x, other, *parameters)  # type: ignore[no-untyped-call]
        return value, has_terms


class _Total:
    """Sums over tiles, and what they are divided by.

    The value of a loss is the sum over k of sums[k] / counts[k]. If the counts are known in advance, or there is one
    tile, or one ratio, a tile contributes one number whose gradient is computed (`objectives`). Otherwise the counts
    are known after the last tile only, and the k sums are kept apart until then.
    """

    def __init__(self, program: PairProgram) -> None:
        self.tiles = program.plan()
        self._program = program
        self._mean = program.loss.reduction == "mean" or program.loss.kind == "batch"
        self._copies = 2.0 if self.tiles[0].is_upper else 1.0  # an entry above the diagonal stands for two
        self._known_counts: Tensor | None = None
        if self._mean and len(self.tiles) > 1 and program.source.degree is None:
            self._known_counts = program.loss.counts(program.source)
        self._sums: Tensor | None = None
        self._counts: Tensor | None = None

    def add(self, terms: Terms) -> Tensor:
        """Add the terms of a tile, and return what they contribute, (k,), with a graph."""
        objectives = self._objectives(terms)
        counts = terms.counts if self._is_late else terms.counts.sum().reshape(1)
        sums = objectives.detach()
        self._sums = sums if self._sums is None else self._sums + sums
        self._counts = counts if self._counts is None else self._counts + counts
        return objectives

    def _objectives(self, terms: Terms) -> Tensor:
        self._is_late = False
        if not self._mean:
            return self._copies * terms.values.sum().reshape(1)
        if len(self.tiles) == 1:
            return terms.mean().reshape(1)
        if self._known_counts is not None:
            counts = self._known_counts.to(terms.sums) / self._copies
            return terms._replace(counts=counts).mean().reshape(1)
        self._is_late = True
        return terms.sums

    def factors(self) -> Tensor:
        """What each of the k contributions is multiplied with in the end, (k,)."""
        assert self._sums is not None
        assert self._counts is not None
        if not self._is_late:
            return torch.ones_like(self._sums)
        return 1.0 / self._counts.masked_fill(self._counts <= 0, 1.0)

    def reduce(self) -> Tensor:
        """The value of the loss."""
        assert self._sums is not None
        return (self._sums * self.factors()).sum()

    def has_terms(self) -> Tensor:
        """Whether anything was counted, a boolean scalar."""
        assert self._counts is not None
        return self._counts.sum() > 0


class _Tiled(torch.autograd.Function):
    """Value and gradient in one pass over the tiles."""

    @staticmethod
    def forward(
        ctx: Any, program: PairProgram, x: Tensor, y: Tensor | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        needed = ctx.needs_input_grad[1:]
        inputs = [x, *([] if y is None else [y]), *parameters]
        wanted = [needed[0], *([] if y is None else [needed[1]]), *needed[2:]]
        with torch.enable_grad():
            total, gradients = _accumulate(program, x.detach(), None if y is None else y.detach(), parameters, wanted)
        ctx.save_for_backward(*inputs, *[g for g in gradients if g is not None])
        ctx.program, ctx.wanted, ctx.is_symmetric = program, wanted, y is None
        value, has_terms = total.reduce(), total.has_terms()
        ctx.mark_non_differentiable(has_terms)
        return value, has_terms

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        inputs, saved = ctx.saved_tensors[: len(ctx.wanted)], iter(ctx.saved_tensors[len(ctx.wanted) :])
        results: Iterator[Tensor | None]
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated: this needs the whole matrix
            results = iter(_differentiate_whole(ctx, inputs, outer[0]))
        else:
            results = iter([next(saved) * outer[0] if w else None for w in ctx.wanted])
        x_gradient = next(results)
        return None, x_gradient, None if ctx.is_symmetric else next(results), *results


def _accumulate(
    program: PairProgram, x: Tensor, y: Tensor | None, parameters: Sequence[Tensor], wanted: Sequence[bool]
) -> tuple[_Total, list[Tensor | None]]:
    """Sum values over all tiles, and gradients by x, by y if it is not x, and by the parameters."""
    total = _Total(program)
    inputs = [x, *([] if y is None else [y]), *parameters]
    gradients: list[list[Tensor | None]] = []  # [k][input]
    for tile in total.tiles:
        scored, relation = program.measure(tile, x, x if y is None else y)
        raw = scored.raw.detach().requires_grad_()
        row_leaf, column_leaf = (
            t.detach().requires_grad_() for t in (x[tile.rows], (x if y is None else y)[tile.columns])
        )
        terms = program.evaluate(tile, raw, relation, row_leaf, column_leaf)
        objectives = total.add(terms)
        if not gradients:
            gradients = [
                [torch.zeros_like(t) if w else None for t, w in zip(inputs, wanted, strict=True)] for _ in objectives
            ]
        for k, objective in enumerate(objectives.unbind()):
            if not objective.requires_grad:
                continue
            leaves = [
                raw,
                row_leaf,
                column_leaf,
                *[p for p, w in zip(parameters, wanted[-len(parameters) :], strict=False) if w],
            ]
            slopes = torch.autograd.grad(objective, leaves, retain_graph=k + 1 < len(objectives), allow_unused=True)
            _add(program, tile, scored, slopes, gradients[k], is_symmetric=y is None)
    factors = total.factors()
    for position in range(len(inputs)):
        parts = [entry[position] for entry in gradients]
        if parts[0] is None:
            continue
        combined = parts[0].mul_(factors[0])
        for part, factor in zip(parts[1:], factors[1:], strict=True):
            assert part is not None
            combined.addcmul_(part, factor)
        gradients[0][position] = combined
    return total, gradients[0]


@torch.no_grad()
def _add(
    program: PairProgram,
    tile: Tile,
    scored: ScoreTile,
    slopes: Sequence[Tensor | None],
    gradients: list[Tensor | None],
    *,
    is_symmetric: bool,
) -> None:
    """Add the gradients of one tile, given those by its raw scores, its operands and the parameters."""
    by_scores, by_rows, by_columns, *by_parameters = slopes
    x_gradient = gradients[0]
    y_gradient = x_gradient if is_symmetric else gradients[1]
    is_whole = tile == Tile()
    if x_gradient is not None and not is_whole:
        x_gradient = x_gradient[tile.rows]
    if y_gradient is not None and not is_whole:
        y_gradient = y_gradient[tile.columns]
    if by_scores is not None:
        program.loss.scoring.add_gradients(scored, by_scores, x_gradient, y_gradient)
    for part, gradient in ((by_rows, x_gradient), (by_columns, y_gradient)):
        if part is not None and gradient is not None:
            gradient += part
    remaining = [g for g in gradients[1 if is_symmetric else 2 :] if g is not None]
    for total, slope in zip(remaining, by_parameters, strict=True):
        if slope is not None:
            total += slope


def _differentiate_whole(ctx: Any, inputs: Sequence[Tensor], outer: Tensor) -> list[Tensor | None]:
    # views, so that the gradients of x and y are separate if they are one tensor
    leaves = [inputs[0].view_as(inputs[0]), *[t.view_as(t) for t in inputs[1 : 1 if ctx.is_symmetric else 2]]]
    y = leaves[0] if ctx.is_symmetric else leaves[1]
    program: PairProgram = ctx.program
    terms = program.evaluate_whole(leaves[0], y)
    is_mean = program.loss.reduction == "mean" or program.loss.kind == "batch"
    value = terms.mean() if is_mean else terms.values.sum()
    requested = [t for t, w in zip([*leaves, *inputs[len(leaves) :]], ctx.wanted, strict=True) if w]
    slopes = iter(torch.autograd.grad(value, requested, outer, create_graph=True, allow_unused=True))
    return [next(slopes) if w else None for w in ctx.wanted]


def _empty_values(kind: str, scores: Tensor) -> Tensor:
    """Differentiable zeros in the shape of the values, for a batch or a reference set without rows."""
    if kind == "pair":
        return scores
    return scores.sum(dim=-1) if kind == "anchor" else scores.sum()
