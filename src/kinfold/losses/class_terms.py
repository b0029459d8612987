"""Losses with one term for each class, from chunks of classes: value and gradient in one pass, three products.

The gradient by the class vectors is as large as they are. It is computed once and handed to autograd without a copy.
"""

import torch
from torch import Tensor

from kinfold.losses.class_logits import ClassVectors
from kinfold.losses.class_shards import ClassShard
from kinfold.losses.engine import PairProgram
from kinfold.losses.terms import Terms
from kinfold.losses.tiles import Tile
from kinfold.pairs import normalize
from kinfold.pairs.fast_function import FastFunction, Tensors, Wanted


def compute_class_terms(
    program: PairProgram, vectors: Tensor, x: Tensor, *, unit: bool, shard: ClassShard | None = None
) -> Terms:
    """Compute the reduced value of a loss whose anchors are class vectors.

    Args:
        program: The loss and its batch.
        vectors: Class vectors, (C, d).
        x: Samples as they are multiplied, (B, d).
        unit: Whether the class vectors are still to be scaled to length one.
        shard: The classes of this process, if they are sharded.

    Returns:
        Terms of one value.
    """
    counts = program.loss.counts(program.source) if program.loss.reduction == "mean" else None
    if shard is not None and counts is not None:
        counts = counts.clone()
        shard.world.sum_in_place(counts)
    value: Tensor = _Stream(program, counts, unit, shard)(vectors, x)
    return Terms.over(value, 1 if counts is None else (counts.sum() > 0))


class _Stream(FastFunction):
    """The chunks of a loss.

    Args:
        program: The loss and its batch.
        counts: What the sums of the terms are divided by, (k,); None for reduction "sum".
        unit: Whether the class vectors are scaled to length one.
        shard: The classes of this process, if they are sharded.
    """

    def __init__(self, program: PairProgram, counts: Tensor | None, unit: bool, shard: ClassShard | None) -> None:
        self._program, self._counts, self._unit, self._shard = program, counts, unit, shard
        self._gradients: list[Tensor | None] | None = None

    def compute(self, inputs: tuple[Tensor, Tensor], wanted: Wanted) -> tuple[Tensor, Tensors]:
        value, self._gradients = self._accumulate(*inputs, wanted)
        return value, []

    def differentiate(
        self, inputs: tuple[Tensor, Tensor], kept: Tensors, outer: tuple[Tensor], wanted: Wanted
    ) -> Tensors:
        if self._gradients is None:  # backward was called before, and the gradients belong to that call
            self._gradients = self._accumulate(*inputs, wanted)[1]
        gradients, self._gradients = self._gradients, None
        is_one = outer[0].device.type == "cpu" and float(outer[0]) == 1.0
        return [g if g is None or is_one else g.mul_(outer[0]) for g in gradients]

    def compute_plainly(self, vectors: Tensor, x: Tensor) -> Tensor:
        """Compute the value from all scores at once."""
        if self._shard is not None:
            raise RuntimeError("second derivatives need all class vectors in one process; do not shard the classes")
        y = normalize(vectors) if self._unit else vectors
        return self._reduce(self._program.evaluate_whole(y, x))

    def _accumulate(self, vectors: Tensor, x: Tensor, wanted: Wanted) -> tuple[Tensor, list[Tensor | None]]:
        """Compute the value, and the gradients by class vectors and samples that are wanted."""
        x, program = x.detach(), self._program
        total = x.new_zeros(())
        by_vectors = torch.empty_like(vectors) if wanted[0] else None
        by_samples = torch.zeros_like(x) if wanted[1] else None
        for chunk in ClassVectors(vectors).plan(x.shape[0]):
            relation = program.source.tile(chunk)
            with torch.enable_grad():
                stored = vectors[chunk].detach().requires_grad_(wanted[0])
                y = normalize(stored) if self._unit else stored
                scores = (y.detach() @ x.T).requires_grad_(any(wanted))
                value = self._reduce(program.evaluate(program.collect(Tile(chunk), scores, y.detach(), x, relation)))
            total += value.detach()
            if not any(wanted):
                continue
            (slope,) = torch.autograd.grad(value, scores)
            if by_samples is not None:
                by_samples.addmm_(slope.T, y.detach())
            if by_vectors is not None:
                by_operand = slope @ x
                by_vectors[chunk] = torch.autograd.grad(y, stored, by_operand)[0] if self._unit else by_operand
        if self._shard is not None:
            self._shard.world.sum_in_place(total)
            if by_samples is not None:
                self._shard.world.sum_in_place(by_samples)
        return total, [by_vectors, by_samples]

    def _reduce(self, terms: Terms) -> Tensor:
        if self._counts is None:
            return terms.values.sum()
        return terms._replace(counts=self._counts.to(terms.sums)).mean()
