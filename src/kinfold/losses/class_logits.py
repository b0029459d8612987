"""Logits of samples and classes from chunks of classes: no tensor of samples x classes is held, forward or backward.

A softmax loss needs two things of its logits: those of the classes of each sample, and log sum exp over all other
classes. The first pass over the chunks adds up that sum. The backward pass computes every chunk again, now with the
softmax, and adds its part of the gradient. This takes four products instead of three, and memory for one chunk.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from kinfold.losses.class_shards import ClassShard
from kinfold.losses.tiles import keep_freed_memory
from kinfold.pairs import normalize
from kinfold.pairs.fast_function import FastFunction, Tensors, Wanted
from kinfold.pairs.masks import HUGE

# Scores in a chunk: 4 MB in float32. At 512 x 128 on one thread, 2^18 took a tenth longer, 2^21 as long.
CHUNK_SCORES = 2**20
# products of fewer vectors are slow
MIN_VECTORS = 64

_Inputs: TypeAlias = tuple[Tensor, Tensor, Tensor | None]  # samples, class vectors, bias


@dataclass(frozen=True)
class TargetClasses:
    """The classes that each sample belongs to.

    Attributes:
        index: Positions among the class vectors, (B, W).
        exists: Which entries of `index` are used, (B, W).
        is_here: Which of them have their class vector in this process, (B, W); None if all have.
    """

    index: Tensor
    exists: Tensor
    is_here: Tensor | None = None

    @property
    def local(self) -> Tensor:
        """The entries whose class vector is in this process, (B, W)."""
        return self.exists if self.is_here is None else self.is_here

    def split(self, starts: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield samples and columns (T,) of the targets in each chunk of classes, in the order of the chunks."""
        samples = torch.arange(self.index.shape[0], device=self.index.device)[:, None].expand_as(self.index)
        columns, order = self.index[self.local].sort()
        samples = samples[self.local][order]
        bounds = torch.searchsorted(columns, torch.tensor(starts, dtype=columns.dtype, device=columns.device)).tolist()
        ends = [*bounds, columns.shape[0]][1:]  # none where this process has no class
        for start, low, high in zip(starts, bounds, ends, strict=True):
            yield samples[low:high], columns[low:high] - start


@dataclass(frozen=True)
class ClassVectors:
    """What samples are compared with, in the form in which it is stored.

    Attributes:
        vectors: (C, d), or (C, K, d) with K vectors per class.
        bias: Added to the scores of each class, (C,), or None.
    """

    vectors: Tensor
    bias: Tensor | None = None

    def select(self, classes: slice | Tensor) -> "ClassVectors":
        """Return those of some classes."""
        return ClassVectors(self.vectors[classes], None if self.bias is None else self.bias[classes])

    def plan(self, samples: int) -> list[slice]:
        """Cut the classes into chunks for a number of samples."""
        if self.vectors.device.type == "cpu":
            keep_freed_memory()
        count, centers = len(self.vectors), self.vectors.shape[1:-1].numel()
        size = max(1, max(MIN_VECTORS, CHUNK_SCORES // max(1, samples)) // max(1, centers))
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True)
class ClassLogits:
    """How logits follow from samples and class vectors.

    Attributes:
        convert: Makes logits (B, c) of scores (B, c), or of (B, c, K) with K vectors per class.
        scale: Factor of the dot products.
        normalize: Whether the class vectors are scaled to length one. The samples are as they should be.
        shard: The classes of this process, if they are sharded.
    """

    convert: Callable[[Tensor], Tensor]
    scale: float
    normalize: bool
    shard: ClassShard | None = None

    def compute(self, x: Tensor, classes: ClassVectors, targets: TargetClasses) -> tuple[Tensor, Tensor]:
        """Compute what a softmax loss needs of the logits, in chunks of classes.

        Args:
            x: Samples, (B, d).
            classes: The class vectors.
            targets: The classes of each sample.

        Returns:
            log sum exp over the classes that a sample does not belong to (B,), about -1e30 if there are none; and the
            logits of its classes (B, W).
        """
        negatives, logits = _StreamedLogits(self, targets)(x, classes.vectors, classes.bias)
        return negatives, logits

    def compute_whole(self, x: Tensor, classes: ClassVectors, targets: TargetClasses) -> tuple[Tensor, Tensor]:
        """Compute the same from all logits at once, with plain operations."""
        logits = self.convert(self.measure(self.scale * x, self.make_operand(classes), classes.bias))
        ((samples, columns),) = targets.split([0])
        others = logits.index_put((samples, columns), logits.new_full((), -HUGE))
        return torch.logsumexp(others, dim=1), logits.gather(1, targets.index)

    def make_operand(self, classes: ClassVectors) -> Tensor:
        """Class vectors as they are multiplied."""
        return normalize(classes.vectors) if self.normalize else classes.vectors

    def measure(self, x: Tensor, y: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Scores (B, c) or (B, c, K) of scaled samples (B, d) and operands (c, d) or (c, K, d)."""
        rows = y.flatten(0, -2).T
        scores = torch.mm(x, rows, out=out) if bias is None else torch.addmm(bias, x, rows, out=out)
        return scores.view(x.shape[0], *y.shape[:-1])

    def measure_targets(self, x: Tensor, classes: ClassVectors) -> Tensor:
        """Logits (B, W) of samples (B, d) and their classes, whose vectors are (B, W, d) or (B, W, K, d)."""
        y = self.make_operand(classes)
        samples = x.reshape(x.shape[0], *[1] * (y.dim() - 2), x.shape[1])
        scores = self.scale * (samples * y).sum(dim=-1)
        return self.convert(scores if classes.bias is None else scores + classes.bias)

    def measure_local_targets(self, x: Tensor, classes: ClassVectors, targets: TargetClasses) -> Tensor:
        """Logits (B, W) of the classes of each sample, zero for those of other processes."""
        if len(classes.vectors) == 0:
            return x.new_zeros(targets.index.shape)
        return torch.where(targets.local, self.measure_targets(x, classes.select(targets.index)), 0.0)


class _Buffers:
    """Memory of (B, c) tensors that is used again by every chunk."""

    def __init__(self, x: Tensor) -> None:
        self._rows = x.shape[0]
        self._tensors = [x.new_empty(0), x.new_empty(0)]

    def get(self, number: int, columns: int) -> Tensor:
        """Return one of two tensors (B, columns)."""
        if self._tensors[number].numel() < self._rows * columns:
            self._tensors[number] = self._tensors[number].new_empty(self._rows * columns)
        return self._tensors[number][: self._rows * columns].view(self._rows, columns)


class _StreamedLogits(FastFunction):
    """log sum exp over the other classes and logits of the targets, see `ClassLogits.compute`."""

    def __init__(self, logits: ClassLogits, targets: TargetClasses) -> None:
        self._logits, self._targets = logits, targets

    def compute(self, inputs: _Inputs, wanted: Wanted) -> tuple[tuple[Tensor, Tensor], Tensors]:
        x, vectors, bias = inputs
        logits, targets = self._logits, self._targets
        classes, scaled = ClassVectors(vectors, bias), logits.scale * x
        chunks = classes.plan(x.shape[0])
        buffers = _Buffers(x)
        parts = [x.new_full((x.shape[0],), -HUGE)]  # log sum exp of each chunk
        for chunk, (samples, columns) in zip(chunks, targets.split([c.start for c in chunks]), strict=True):
            part = classes.select(chunk)
            y = logits.make_operand(part)
            values = logits.convert(logits.measure(scaled, y, part.bias, buffers.get(0, y.shape[:-1].numel())))
            values[samples, columns] = -HUGE
            highest, share = values.amax(dim=1), torch.softmax(values, dim=1, out=buffers.get(1, values.shape[1]))
            parts.append(highest - share.amax(dim=1).log_())
        negatives = torch.stack(parts).logsumexp(dim=0)
        target_logits = logits.measure_local_targets(x, classes, targets)
        if logits.shard is not None:
            negatives = logits.shard.combine_logsumexp(negatives)
            logits.shard.world.sum_in_place(target_logits)
        return (negatives, target_logits), [negatives, *parts[1:]]

    def differentiate(
        self, inputs: _Inputs, kept: tuple[Tensor, ...], outer: tuple[Tensor, Tensor], wanted: Wanted
    ) -> Tensors:
        x, vectors, bias = inputs
        negatives, *parts = kept
        gradient = _Gradient(self._logits, x, ClassVectors(vectors, bias), wanted)
        gradient.add_negatives(self._targets, negatives, parts, outer[0])
        gradient.add_targets(self._targets, outer[1])
        if self._logits.shard is not None and gradient.x is not None:
            self._logits.shard.world.sum_in_place(gradient.x)
        return [gradient.x, gradient.vectors, gradient.bias]

    def compute_plainly(self, x: Tensor, vectors: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Needs all logits at once."""
        if self._logits.shard is not None:
            raise RuntimeError("second derivatives need all class vectors in one process; do not shard the classes")
        return self._logits.compute_whole(x, ClassVectors(vectors, bias), self._targets)


class _Gradient:
    """Gradients by samples, class vectors and bias; None where one is not wanted.

    Args:
        logits: How logits are computed.
        x: Samples, (B, d).
        classes: The class vectors.
        wanted: Which of the three gradients are needed.
    """

    def __init__(self, logits: ClassLogits, x: Tensor, classes: ClassVectors, wanted: Wanted) -> None:
        self._logits, self._samples, self._classes = logits, x, classes
        self.x = torch.zeros_like(x) if wanted[0] else None
        self.vectors = torch.empty_like(classes.vectors) if wanted[1] else None
        self.bias = torch.empty_like(classes.bias) if wanted[2] and classes.bias is not None else None

    def add_negatives(self, targets: TargetClasses, negatives: Tensor, parts: list[Tensor], outer: Tensor) -> None:
        """Write the gradient of sum_i outer_i negatives_i, chunk by chunk, given the log sum exp of each chunk."""
        logits, buffers = self._logits, _Buffers(self._samples)
        scaled = logits.scale * self._samples
        # a sample without other classes has no softmax: exp(-1e30) instead of exp(1e30)
        shift = torch.where(negatives < -HUGE / 2, HUGE, negatives)
        chunks = self._classes.plan(scaled.shape[0])
        targets_of_chunks = targets.split([c.start for c in chunks])
        for chunk, part_sum, (samples, columns) in zip(chunks, parts, targets_of_chunks, strict=True):
            # the softmax over a chunk times this is the softmax over all; it is applied to the small operands
            factor = ((part_sum - shift).exp_() * outer)[:, None]
            part = self._classes.select(chunk)
            with torch.enable_grad():
                stored = part.vectors.detach().requires_grad_(self.vectors is not None)
                y = logits.make_operand(ClassVectors(stored))
            scores = logits.measure(
                scaled, y.detach(), part.bias, buffers.get(0, y.shape[:-1].numel())
            ).requires_grad_()
            with torch.enable_grad():
                values = logits.convert(scores)
            masked = values.detach() if values is scores else values.detach().clone()
            masked[samples, columns] = -HUGE
            share = torch.softmax(masked, dim=1, out=buffers.get(1, masked.shape[1]))
            share[samples, columns] = 0.0  # also for a sample without other classes, whose softmax is uniform
            by_scores = (share if values is scores else torch.autograd.grad(values, scores, share)[0]).flatten(1)
            if self.x is not None:
                self.x.addcmul_(factor, by_scores @ y.detach().flatten(0, -2), value=logits.scale)
            if self.vectors is not None:
                by_operand = (by_scores.T @ (factor * scaled)).view_as(y)
                self.vectors[chunk] = by_operand if y is stored else torch.autograd.grad(y, stored, by_operand)[0]
            if self.bias is not None:
                self.bias[chunk] = by_scores.T @ factor.squeeze(1)

    def add_targets(self, targets: TargetClasses, outer: Tensor) -> None:
        """Add the gradient by the logits of the targets, (B, W)."""
        if len(self._classes.vectors) == 0:
            return
        inputs = [self._samples, *vars(self._classes.select(targets.index)).values()]
        gradients = [self.x, self.vectors, self.bias]
        with torch.enable_grad():
            leaves = [None if t is None else t.detach().requires_grad_() for t in inputs]
            x, vectors, bias = leaves
            assert x is not None
            assert vectors is not None
            logits = self._logits.measure_targets(x, ClassVectors(vectors, bias))
        wanted = [leaf for leaf, total in zip(leaves, gradients, strict=True) if total is not None and leaf is not None]
        slopes = iter(torch.autograd.grad(logits, wanted, torch.where(targets.local, outer, 0.0)))
        if self.x is not None:
            self.x += next(slopes)
        for total in (self.vectors, self.bias):
            if total is not None:
                total.index_add_(0, targets.index.flatten(), next(slopes).flatten(0, 1))
