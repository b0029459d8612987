"""The weight of every pair in a loss: its derivative by the raw scores."""

import torch
from torch import Tensor

from kinfold.losses.engine import PairProgram
from kinfold.losses.mined_terms import evaluate_tuples
from kinfold.losses.tiles import Tile
from kinfold.pairs import PairBatch, Quadruplets, Triplets
from kinfold.pairs.index_tuples import Tuples


def compute_pair_weights(program: PairProgram, tuples: Tuples | None) -> Tensor:
    """Return the derivative of the mean loss by the raw score of every pair, (B, R); needs autograd enabled.

    For proxies that are anchors the result has a row for each sample.
    """
    loss, batch = program.loss, program.batch
    x, y = loss.scoring.make_operands(batch)
    if isinstance(tuples, Triplets | Quadruplets) and y.shape[0]:
        raw = loss.scoring.measure_tuples(x, y, tuples).detach().requires_grad_()
        (sides,) = torch.autograd.grad(evaluate_tuples(loss, raw, batch, tuples).mean(), raw)
        return _scatter(sides, tuples, batch)
    relation = program.source.tile()
    raw = loss.scoring.measure_matrix(x, y, relation).detach().requires_grad_()
    value = program.evaluate(program.collect(Tile(), raw, x, y, relation)).mean()
    (weights,) = torch.autograd.grad(value, raw)
    return weights.T if loss.proxies_are_anchors else weights


def _scatter(weights: Tensor, tuples: Triplets | Quadruplets, batch: PairBatch) -> Tensor:
    """Add the weights (2 or 3, T) of the pairs of tuples into a matrix of pairs (B, R)."""
    matrix = weights.new_zeros(batch.anchors.shape[0], batch.references.shape[0])
    sides = [(tuples.anchor, tuples.positive), (tuples.anchor, tuples.negative)]
    if isinstance(tuples, Quadruplets):
        if not batch.symmetric:
            raise ValueError(
                "a quadruplet has a pair of two references, which has no place in the (B, R) weights: "
                "leave out ref_embeddings"
            )
        sides.append((tuples.negative, tuples.fourth))
    for side, index in zip(weights, sides, strict=True):
        matrix.index_put_(index, side, accumulate=True)
    return matrix
