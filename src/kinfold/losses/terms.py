"""Input and output of a loss: `ScoredPairs` in, `Terms` out.

The mean of a loss is a ratio of sums, or a sum of such ratios, so the terms of two row chunks can be added.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from kinfold.pairs.class_rows import ClassRows
from kinfold.pairs.masks import count, mask_to_float


class Terms(NamedTuple):
    """The values of a loss, and the sums and counts of their mean: sum over k of sums[k] / counts[k].

    Attributes:
        values: (B, R) for pairs, (B,) for anchors, (T,) for tuples, () for a loss of the whole batch.
        sums: (k,).
        counts: (k,), without gradient; a count of zero makes its ratio zero.
        weighted: Whether the weights of `ScoredPairs` are applied to all three. Its methods `per_...` do it.
        shares: How much each value counts, in the shape of `values`, if there is one ratio and this is known.
    """

    values: Tensor
    sums: Tensor
    counts: Tensor
    weighted: bool = False
    shares: Tensor | None = None

    @classmethod
    def over(cls, values: Tensor, count: Tensor | int) -> "Terms":
        """Make terms whose mean is values.sum() / count.

        Args:
            values: The values.
            count: A number, or how much each value counts, in the shape of `values`. The latter makes `sample_weight`
                work.
        """
        number = torch.as_tensor(count, device=values.device)
        shares = number if values.dim() and number.shape == values.shape else None
        total = number if shares is None else number.sum()
        return cls(values, values.sum().reshape(1), total.to(values.dtype).reshape(1), shares=shares)

    def weight_by(self, weights: Tensor) -> "Terms":
        """Return the terms with a weight for each value, in its sum and in its count.

        Args:
            weights: In the shape of `values`.

        Raises:
            ValueError: It is not known how much each value counts.
        """
        if self.weighted:
            return self
        if self.shares is None:
            raise ValueError(
                "sample_weight needs the count of each value: end terms with Terms.over(values, counts), where counts "
                "has the shape of values, instead of their sum"
            )
        values = self.values * weights
        return Terms(values, values.sum().reshape(1), (self.shares * weights).sum().reshape(1), weighted=True)

    def check(self, kind: Literal["pair", "anchor", "batch"], scores: Tensor, loss: str) -> None:
        """Raise ValueError for values of a wrong shape or without a gradient; `loss` is the name of the class."""
        shape = {"pair": scores.shape, "anchor": scores.shape[:-1], "batch": torch.Size([])}[kind]
        if self.values.shape != shape:
            unit = {"pair": "pair", "anchor": "row of pairs", "batch": "batch"}[kind]
            raise ValueError(
                f"{loss} is of kind {kind!r}, one value for each {unit}: its terms must have the shape {tuple(shape)} "
                f"for scores {tuple(scores.shape)}, not {tuple(self.values.shape)}"
            )
        if scores.requires_grad and torch.is_grad_enabled() and not self.sums.requires_grad:
            raise ValueError(
                f"the terms of {loss} have no gradient by the scores, so nothing would be learned: compute the values "
                "without .detach(), .item(), comparisons and counts"
            )

    def mean(self) -> Tensor:
        """Return the sum over k of sums[k] / counts[k]."""
        return (self.sums / self.counts.masked_fill(self.counts <= 0, 1.0)).sum()


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs with their scores: a cosine, a dot product or a distance, depending on the `measure` of the loss.

    Attributes:
        scores: (B, R). Losses of kind "pair" may also get another shape, such as (2, T).
        positives, negatives: Boolean masks of the shape of `scores`.
        anchors: Embeddings (B, d), normalized if the loss declares so.
        references: Embeddings (R, d), normalized if the loss declares so.
        weights: Weight of each pair in a shape that broadcasts to `scores`, for losses of kind "pair": from a
            real-valued relation, from `sample_weight`, or from both.
        anchor_weights: Weight of each row (B,), or of each triplet (T,), from `sample_weight`.
        degree: Degree of each pair in [0, 1], for a real-valued relation and a loss with `graded`. Pairs of degree zero
            are negatives, all others positives.
        labels: Labels of the anchors in a shape that broadcasts to `scores`, if there are any.
        reference_labels: Labels of the references (R,), if there are any; those of the anchors in a batch compared with
            itself.
        lengths: Lengths of the anchors before they were normalized, (B,), for a loss with `uses_lengths`.
        symmetric: Whether the references are the anchors themselves.
        from_triplets: Whether the pairs are the (a, p) and (a, n) of triplets, shape (2, T).
        batch_size: Number of anchors of the whole batch, of which these rows may be a chunk.
        classes: Rows of each class, for a loss with `whole_classes`, if labels alone say which pairs are positive and a
            batch is compared with itself. The rows then hold all anchors of these classes.
    """

    scores: Tensor
    positives: Tensor
    negatives: Tensor
    anchors: Tensor | None = None
    references: Tensor | None = None
    weights: Tensor | None = None
    anchor_weights: Tensor | None = None
    degree: Tensor | None = None
    labels: Tensor | None = None
    reference_labels: Tensor | None = None
    lengths: Tensor | None = None
    symmetric: bool = False
    from_triplets: bool = False
    batch_size: int | None = None
    classes: ClassRows | None = None

    @property
    def relevance(self) -> Tensor:
        """Degree of each pair, (B, R); without a real-valued relation 1 for positives and 0 for all others."""
        return mask_to_float(self.positives, self.scores) if self.degree is None else self.degree * self.positives

    def per_pair(self, values: Tensor, counted: Tensor | None = None) -> Terms:
        """Return terms whose mean is over the counted pairs, each with its weight.

        Args:
            values: Loss of every pair, zero for pairs that are not counted.
            counted: Which pairs are counted, boolean or as numbers; by default all pairs of the relation.
        """
        _check_shape(values, self.scores.shape, "per_pair", "pair")
        if self.weights is None:
            if counted is None:
                return Terms.over(values, count(self.positives | self.negatives, dim=-1).sum())
            return Terms.over(values, counted.sum())
        weights = self.weights * (self.positives | self.negatives)
        total = weights if counted is None else weights * counted
        return Terms.over(values * weights, total.sum())._replace(weighted=True)

    def per_side(self, values: Tensor, counted: Tensor | None = None) -> Terms:
        """Return terms of the mean over positive pairs plus the mean over negative pairs, each pair with its weight.

        Args:
            values: Loss of every pair, zero for pairs that are not counted.
            counted: Which pairs are counted, boolean or as numbers; by default all pairs of the relation.
        """
        _check_shape(values, self.scores.shape, "per_side", "pair")
        sides = mask_to_float(self.positives, values), mask_to_float(self.negatives, values)
        weights = self.weights
        if weights is not None:
            values = values * weights
        if counted is not None:
            weights = counted.to(values.dtype) if weights is None else counted * weights
        counts = torch.stack(
            [(side if weights is None else torch.linalg.vecdot(side, weights)).sum() for side in sides]
        )
        sums = torch.stack([torch.linalg.vecdot(values, side).sum() for side in sides])
        return Terms(values, sums, counts, weighted=self.weights is not None)

    def per_sample(self, values: Tensor) -> Terms:
        """Return terms whose mean is over the samples that have a class: all of them if there are labels."""
        _check_shape(values, self.scores.shape[:1], "per_sample", "row of scores")
        if self.labels is not None:
            return self._weigh(Terms.over(values, torch.ones_like(values)))
        has_class = count(self.positives) > 0
        return self._weigh(Terms.over(torch.where(has_class, values, 0.0), has_class))

    def per_anchor(self, values: Tensor) -> Terms:
        """Return terms whose mean is over the anchors with a positive and a negative; other values become zero."""
        valid = (count(self.positives) > 0) & (count(self.negatives) > 0)
        _check_shape(values, valid.shape, "per_anchor", "row of scores")
        return self._weigh(Terms.over(torch.where(valid, values, 0.0), valid))

    def _weigh(self, terms: Terms) -> Terms:
        return terms if self.anchor_weights is None else terms.weight_by(self.anchor_weights)


def _check_shape(values: Tensor, shape: torch.Size, name: str, unit: str) -> None:
    """Raise ValueError for values of a wrong shape, such as a mean, which would be broadcast."""
    if values.shape != shape:
        raise ValueError(
            f"pairs.{name} takes one value for each {unit}, shape {tuple(shape)}, got {tuple(values.shape)}; it takes "
            "the mean itself"
        )
