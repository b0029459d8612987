"""What a loss is handed and what it gives back: scored pairs in, terms out.

A loss is a ratio of sums (or a sum of such ratios), so the terms of two blocks of rows add up to those of both.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from kinfold.pairs.masks import count, number


class Terms(NamedTuple):
    """The single values of a loss and how they make a mean: sum over k of sums[k] / counts[k].

    values: (B, R) for pairs, (B,) for anchors, (T,) for tuples, () for a loss of the whole batch.
    sums, counts: (k,) each; counts carry no gradient, and a count of zero makes its ratio zero.
    weighted: whether `ScoredPairs.weights` is applied to all three. `ScoredPairs.per_pair` and `per_side` do it.
    """

    values: Tensor
    sums: Tensor
    counts: Tensor
    weighted: bool = False

    @classmethod
    def over(cls, values: Tensor, count: Tensor | int) -> "Terms":
        """Terms whose mean is values.sum() / count."""
        counts = torch.as_tensor(count, device=values.device).to(values.dtype).reshape(1)
        return cls(values, values.sum().reshape(1), counts)

    def check(self, kind: Literal["pair", "anchor", "batch"], scores: Tensor, loss: str) -> None:
        """Refuse values that do not belong to the pairs or cannot teach: what an author would else find out late."""
        shape = {"pair": scores.shape, "anchor": scores.shape[:-1], "batch": torch.Size([])}[kind]
        if self.values.shape != shape:
            one = {"pair": "pair", "anchor": "row of pairs", "batch": "batch"}[kind]
            raise ValueError(
                f"{loss} is of kind {kind!r}, one value for each {one}: its terms must have the shape {tuple(shape)} "
                f"for scores {tuple(scores.shape)}, not {tuple(self.values.shape)}"
            )
        if scores.requires_grad and torch.is_grad_enabled() and not self.sums.requires_grad:
            raise ValueError(
                f"the terms of {loss} do not depend on the scores by anything that has a gradient, so nothing would be "
                "learned: leave out .detach(), .item(), comparisons and counts on the way to the values"
            )

    def mean(self) -> Tensor:
        return (self.sums / self.counts.masked_fill(self.counts <= 0, 1.0)).sum()


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs with their scores: a cosine, a dot product or a distance, as the loss declares.

    scores, positives, negatives: (B, R); or any one shape that holds pairs, for losses that work pair by pair.
    anchors (B, d), references (R, d): what was compared, normalised or raw as the loss declares.
    weights: how much a pair counts, where not 1.
    labels: the anchors' labels in a shape that broadcasts to `scores`, where given.
    symmetric: the references are the anchors themselves.
    batch_size: the number of anchors in all, of which these rows may be some.
    from_triplets: the pairs are the (a, p) and (a, n) sides of triplets, shape (2, T).
    """

    scores: Tensor
    positives: Tensor
    negatives: Tensor
    anchors: Tensor | None = None
    references: Tensor | None = None
    weights: Tensor | None = None
    labels: Tensor | None = None
    symmetric: bool = False
    from_triplets: bool = False
    batch_size: int | None = None

    def per_pair(self, values: Tensor, counted: Tensor | None = None) -> Terms:
        """Mean over the pairs that count, each by its weight.

        Args:
            values: Loss of every pair, zero where a pair does not count.
            counted: Which pairs count, boolean or as numbers; all pairs of the relation where not given.
        """
        _check_shape(values, self.scores.shape, "per_pair", "pair")
        if self.weights is None:
            if counted is None:
                return Terms.over(values, count(self.positives | self.negatives, dim=-1).sum())
            return Terms.over(values, counted.sum())
        weights = self.weights * (self.positives | self.negatives)
        total = weights if counted is None else weights * counted
        return Terms.over(values * weights, total.sum())._replace(weighted=True)

    def per_side(self, values: Tensor) -> Terms:
        """Mean over the positive pairs plus mean over the negative pairs, each pair by its weight."""
        _check_shape(values, self.scores.shape, "per_side", "pair")
        sides = number(self.positives, values), number(self.negatives, values)
        if self.weights is None:
            counts = torch.stack([side.sum() for side in sides])
        else:
            values = values * self.weights
            counts = torch.stack([(side * self.weights).sum() for side in sides])
        sums = torch.stack([(values * side).sum() for side in sides])
        return Terms(values, sums, counts, weighted=self.weights is not None)

    def per_sample(self, values: Tensor) -> Terms:
        """Mean over the samples that belong to a class of theirs: all of them, where there are labels."""
        _check_shape(values, self.scores.shape[:1], "per_sample", "row of scores")
        if self.labels is not None:
            return Terms.over(values, values.shape[0])
        known = count(self.positives) > 0
        return Terms.over(torch.where(known, values, 0.0), known.sum())

    def per_anchor(self, values: Tensor) -> Terms:
        """Mean over the anchors that have a positive and a negative; the others' values are set to zero."""
        valid = (count(self.positives) > 0) & (count(self.negatives) > 0)
        _check_shape(values, valid.shape, "per_anchor", "row of scores")
        return Terms.over(torch.where(valid, values, 0.0), valid.sum())


def _check_shape(values: Tensor, shape: torch.Size, name: str, one: str) -> None:
    """A mean that was taken too early would be broadcast, and count for everybody."""
    if values.shape != shape:
        raise ValueError(
            f"pairs.{name} takes one value for each {one}, shape {tuple(shape)}, got {tuple(values.shape)}; it takes "
            "the mean itself"
        )
