"""One tile of the matrix of pairs: what goes in, what comes out, and its gradient by autograd."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from kinfold.losses.totals import TileObjective
from kinfold.pairs import Relation
from kinfold.pairs.class_rows import ClassRows

if TYPE_CHECKING:
    from kinfold.losses.engine import PairProgram


class TileInputs(NamedTuple):
    """What the terms of a tile are computed from.

    Attributes:
        raw: Raw scores, (r, c).
        relation: Positive and negative pairs; None until it is known.
        x, y: Operands of the rows (r, d) and of the columns (c, d); None for an elementwise loss, which needs none.
        labels: Labels of the rows, (r, 1), if there are any.
        reference_labels: Labels of the columns, (c,), if there are any.
        classes: Rows of each class, if they are known to be complete.
        weights: Weights of the rows, (r,), if there are any.
    """

    raw: Tensor
    relation: Relation | None = None
    x: Tensor | None = None
    y: Tensor | None = None
    labels: Tensor | None = None
    reference_labels: Tensor | None = None
    classes: ClassRows | None = None
    weights: Tensor | None = None


class TileGradient(NamedTuple):
    """What one tile adds.

    Attributes:
        contribution: To the value, (k,), see `TileObjective`.
        counts: Of its terms.
        slopes: For each of the k numbers its gradients by the raw scores, by the operands of rows and columns, and by
            the parameters; None for what it does not depend on.
    """

    contribution: Tensor
    counts: Tensor
    slopes: Sequence[Sequence[Tensor | None]]


def differentiate_tile(
    program: "PairProgram", inputs: TileInputs, objective: TileObjective, parameters: Sequence[Tensor]
) -> TileGradient:
    """Compute the contribution of a tile and its gradients by autograd."""
    raw = inputs.raw.detach().requires_grad_()
    x, y = (None if t is None else t.detach().requires_grad_() for t in (inputs.x, inputs.y))
    leaves = [raw, x, y, *parameters]
    terms = program.evaluate(inputs._replace(raw=raw, x=x, y=y))
    contribution = objective(terms)
    slopes = []
    for k, number in enumerate(contribution.unbind()):
        is_last = k + 1 == contribution.shape[0]
        slopes.append(_differentiate(number, leaves, retain_graph=not is_last))
    return TileGradient(contribution.detach(), terms.counts, slopes)


def _differentiate(number: Tensor, leaves: Sequence[Tensor | None], *, retain_graph: bool) -> list[Tensor | None]:
    """Gradients by the leaves that exist and need one."""
    wanted = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    if not number.requires_grad:
        return [None] * len(leaves)
    slopes = iter(torch.autograd.grad(number, wanted, retain_graph=retain_graph, allow_unused=True))
    return [next(slopes) if leaf is not None and leaf.requires_grad else None for leaf in leaves]
