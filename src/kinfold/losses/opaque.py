"""Large batches inside `torch.compile`: one operator that the compiler does not look into.

A compiled graph would hold the whole matrix of pairs and be slower than tiles. Instead the graph contains one call of
`kinfold::loss_of_tiles`, which computes value and gradients tile by tile, as without the compiler.
"""

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kinfold.losses.engine import PairProgram
from kinfold.pairs import PairBatch, Relation
from kinfold.pairs.relation_source import LabelRelation, MatrixRelation, RelationSource

if TYPE_CHECKING:
    from kinfold.losses.loss import Loss

# Pairs from which the operator is used. Below, the compiler's fused graph is as fast as tiles.
OPAQUE_PAIRS = 2**17

_LOSSES: "weakref.WeakValueDictionary[int, Loss]" = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


def register_loss(loss: "Loss") -> int:
    """Return a number by which the operator finds the loss."""
    number = next(_NUMBERS)
    _LOSSES[number] = loss
    return number


def is_large(source: RelationSource) -> bool:
    """Whether a batch inside a compiled graph is left to the operator."""
    rows, columns = source.shape
    return torch.compiler.is_compiling() and rows * columns >= OPAQUE_PAIRS


def compute_opaque(program: PairProgram, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute what `Loss.compute` does, as one operator of a compiled graph."""
    parameters = [parameter for name, parameter in program.loss.named_parameters() if name != "proxies"]
    other = None if y is x else y
    tensors, labels, weights = _pack(program.source), program.batch.labels, program.batch.weights
    results = torch.ops.kinfold.loss_of_tiles(program.loss.number, x, other, labels, weights, tensors, parameters)
    return results[0], results[1]


def _pack(source: RelationSource) -> list[Tensor]:
    """The tensors of a relation, empty ones where it has none: labels and ids, or masks."""
    if isinstance(source, LabelRelation):
        parts = [source.labels, source.ref_labels, source.ids, source.ref_ids]
    else:
        assert isinstance(source, MatrixRelation)
        parts = [source.relation.positives, source.relation.negatives, source.relation.degree]
    nothing = torch.zeros(0, 0, device=parts[0].device if parts[0] is not None else None)
    return [nothing if part is None else part for part in parts]


def _unpack(tensors: list[Tensor]) -> RelationSource:
    parts = [None if part.shape == (0, 0) and part.is_floating_point() else part for part in tensors]
    assert parts[0] is not None
    if len(parts) == 4:
        return LabelRelation(parts[0], parts[1], parts[2], parts[3])
    assert parts[1] is not None
    return MatrixRelation(Relation(parts[0], parts[1], parts[2]))


@torch.library.custom_op("kinfold::loss_of_tiles", mutates_args=())
def _loss_of_tiles(
    number: int,
    x: Tensor,
    y: Tensor | None,
    labels: Tensor | None,
    weights: Tensor | None,
    relation: list[Tensor],
    parameters: list[Tensor],
) -> list[Tensor]:
    """Value, whether anything was counted, and the gradients by x, y and the parameters."""
    loss = _LOSSES[number]
    # operators run below autograd; the gradient of a tile needs it
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False), torch.enable_grad():
        rows = x.detach().requires_grad_()
        columns = rows if y is None else y.detach().requires_grad_()
        source = _unpack(relation)
        ref_labels = source.ref_labels if isinstance(source, LabelRelation) else None
        batch = PairBatch(rows, columns, source, labels, symmetric=y is None, ref_labels=ref_labels, weights=weights)
        value, has_terms = loss.compute(PairProgram(loss, batch, batch.source, loss.terms), rows, columns)
        parameter_leaves = [parameter for name, parameter in loss.named_parameters() if name != "proxies"]
        leaves = [rows, *([] if y is None else [columns]), *parameter_leaves]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        slopes = iter(
            torch.autograd.grad(value, wanted, allow_unused=True) if value.requires_grad else [None] * len(wanted)
        )
    by_leaf = [next(slopes) if leaf.requires_grad else None for leaf in leaves]
    gradients = [
        torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(leaves, by_leaf, strict=True)
    ]
    return [value.detach().clone(), has_terms.clone(), *[gradient.clone() for gradient in gradients]]


@_loss_of_tiles.register_fake
def _(
    number: int,
    x: Tensor,
    y: Tensor | None,
    labels: Tensor | None,
    weights: Tensor | None,
    relation: list[Tensor],
    parameters: list[Tensor],
) -> list[Tensor]:
    leaves = [x, *([] if y is None else [y]), *parameters]
    return [x.new_empty(()), x.new_empty((), dtype=torch.bool), *[torch.empty_like(leaf) for leaf in leaves]]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _, _, y, _, _, relation, parameters = inputs
    ctx.save_for_backward(*output[2:])
    ctx.has_columns, ctx.sizes = y is not None, (len(relation), len(parameters))


def _backward(ctx: Any, outer: list[Tensor]) -> Any:
    gradients = [gradient * outer[0] for gradient in ctx.saved_tensors]
    columns = gradients.pop(1) if ctx.has_columns else None
    relation, _ = ctx.sizes
    return None, gradients[0], columns, None, None, [None] * relation, gradients[1:]


_loss_of_tiles.register_autograd(_backward, setup_context=_setup_context)
