"""Losses with class vectors, in chunks of classes if there are many."""

import torch
from torch import Tensor, nn

from kinfold.losses import tiles
from kinfold.losses.class_logits import ClassLogits, ClassVectors, TargetClasses
from kinfold.losses.class_terms import compute_class_terms
from kinfold.losses.engine import PairProgram
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.target_logits import TargetLogits
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import PairBatch, normalize
from kinfold.pairs.index_tuples import Tuples
from kinfold.pairs.masks import list_columns
from kinfold.pairs.transforms import is_transformed

# Class vectors from which a softmax loss is computed in chunks of classes. Fewer are computed in rows of all classes,
# with three products instead of four.
MANY_VECTORS = 2**14


class ProxyLoss(Loss):
    """Base class of losses that compare samples with class vectors.

    A softmax loss implements `values`, which computes the loss of each sample from the logits of its classes and the
    log sum exp of all others, and `logits` if they are more than scaled scores. A loss with one term for each class
    sets `proxies_are_anchors` and implements `terms` and `counts`. With many classes both are computed in chunks of
    classes: no tensor of samples x classes is held.

    Args:
        reduction: "mean", "sum" or "none".

    Attributes:
        logit_scale: Factor of the scores.
        bias: Added to the score of each class, (C,), or None.
        needs_negatives: Whether a sample that belongs to every class is left out of the mean.
    """

    logit_scale: float = 1.0
    bias: nn.Parameter | None
    needs_negatives: bool = False

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.register_parameter("bias", None)

    def logits(self, scores: Tensor) -> Tensor:
        """Compute the logit of each class, (B, c).

        Args:
            scores: Scaled scores of some classes, with the bias: (B, c), or (B, c, K) with K vectors per class.
        """
        return scores

    def values(self, targets: TargetLogits) -> Tensor:
        """Compute the loss of every sample, (B,); implemented by each softmax loss."""
        raise NotImplementedError(f"{type(self).__name__} defines neither values(self, targets) nor terms(self, pairs)")

    def terms(self, pairs: ScoredPairs) -> Terms:
        scores = self.logit_scale * self._by_class(pairs.scores, dim=1)
        if self.bias is not None:
            scores = scores + self.bias.to(scores.dtype)

        def measure(index: Tensor) -> Tensor:
            assert pairs.anchors is not None
            assert pairs.references is not None
            return _measure_distances(pairs.anchors, self._by_class(pairs.references)[index])

        return self._average(TargetLogits.from_matrix(self.logits(scores), pairs, measure), scores.shape[1])

    def compute(self, program: PairProgram, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if not self._has_many_classes(program.batch):
            return super().compute(program, x, y)
        terms = self._compute_chunks(program, x, y, unit=False)
        mean = terms.mean() if self.reduction == "mean" else terms.values.sum()
        return mean, terms.counts.sum() > 0

    def _terms(self, batch: PairBatch, tuples: Tuples | None) -> Terms:
        if is_transformed() or not self._has_many_classes(batch):
            return super()._terms(batch, tuples)
        program = PairProgram(self, batch, batch.source, self._call_terms)
        # class vectors are normalized chunk by chunk
        x, y = batch.anchors, batch.references
        if self.normalize:
            x, y = (x, normalize(y)) if self.proxies_are_anchors else (normalize(x), y)
        return self._compute_chunks(program, x, y, unit=self.normalize)

    def _has_many_classes(self, batch: PairBatch) -> bool:
        rows, columns = batch.anchors.shape[0], batch.references.shape[0]
        if rows * columns <= tiles.WHOLE_PAIRS:
            return False
        return self.reduction != "none" if self.proxies_are_anchors else columns >= MANY_VECTORS

    def _compute_chunks(self, program: PairProgram, x: Tensor, y: Tensor, *, unit: bool) -> Terms:
        """Compute the terms in chunks of classes; with `unit`, the class vectors are still to be normalized."""
        if self.proxies_are_anchors:
            return compute_class_terms(program, x, y, unit=unit)
        classes = ClassVectors(self._by_class(y), None if self.bias is None else self.bias.to(y.dtype))
        labels = program.batch.labels
        if labels is None:
            targets = TargetClasses(*list_columns(program.source.tile().positives))
        else:
            targets = TargetClasses(labels[:, None], torch.ones_like(labels[:, None], dtype=torch.bool))
        logits = ClassLogits(self.logits, self.logit_scale, unit)
        negatives, target_logits = logits.compute(x, classes, targets)

        def measure() -> Tensor:
            return _measure_distances(x, logits.make_operand(classes.select(targets.index)))

        return self._average(TargetLogits(targets, target_logits, negatives, measure), len(classes.vectors))

    def _average(self, targets: TargetLogits, num_classes: int) -> Terms:
        """Return terms whose mean is over the samples that have a class."""
        values, number = self.values(targets), targets.classes.exists.sum(dim=1)
        is_used = number > 0
        if self.needs_negatives:
            is_used = is_used & (number < num_classes)
        return Terms.over(torch.where(is_used, values, 0.0), is_used.sum())

    def _by_class(self, rows: Tensor, dim: int = 0) -> Tensor:
        """Split a dimension of all class vectors, C K, into classes and their vectors, (C, K)."""
        assert self.proxies is not None
        if self.proxies.dim() == 2:
            return rows
        return rows.reshape(*rows.shape[:dim], -1, self.proxies.shape[1], *rows.shape[dim + 1 :])


@torch.no_grad()
def _measure_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances (B, W) of samples (B, d) to vectors (B, W, d), or to the nearest of K, (B, W, K, d)."""
    squared = (x.reshape(x.shape[0], *[1] * (y.dim() - 2), x.shape[1]) - y).square().sum(dim=-1)
    return squared if y.dim() == 3 else squared.amin(dim=-1)
