"""Histogram loss: chance that a negative is more similar than a positive (Ustinova & Lempitsky, NeurIPS 2016)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kinfold.losses.engine import PairProgram
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.soft_histogram import soft_histogram
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import count, list_columns, mask_to_float, union


def histogram(similarity: Tensor, positives: Tensor, negatives: Tensor, *, bins: int = 65) -> Tensor:
    """Loss of all pairs together; zero without positives or without negatives.

    sum_r h-(r) sum_{q <= r} h+(q)

    h+ and h- are histograms of the similarities on `bins` nodes from -1 to 1. A pair is split between its two nearest
    nodes by its distance from them, so the histograms have a gradient.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        bins: Number of nodes, both ends included.

    Returns:
        A scalar.

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, False]])
        >>> histogram(torch.tensor([[-1.0, 1.0]]), positives, ~positives, bins=3)
        tensor(1.)
        >>> histogram(torch.tensor([[1.0, -1.0]]), positives, ~positives)
        tensor(0.)
    """
    position = (similarity + 1.0) * ((bins - 1) / 2)  # in steps from the first node
    index, exists = list_columns(positives)  # positives are few: gather them first
    positive = soft_histogram(position.gather(1, index), exists, bins).sum(dim=0) / exists.sum().clamp(min=1)
    negative = soft_histogram(position, negatives, bins).sum(dim=0) / count(negatives).sum().clamp(min=1)
    return (negative * positive.cumsum(dim=0)).sum()


class Histogram(Loss):
    """Histogram loss of a batch, on cosines; it has no margin and no scale to tune.

    A batch is passed over twice in tiles: once for the two histograms, once for the gradient.

    Args:
        bins: Number of nodes from -1 to 1, both ends included; Roth et al. (2020) use 65, and 11 for large datasets.
        reduction: "mean" or "sum".
    """

    kind = "batch"
    supports_chunks = False
    fixed_measure = "its histograms cover the cosines, -1 to 1"

    def __init__(self, bins: int = 65, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        if bins < 2:
            raise ValueError(f"bins is the number of nodes, both ends included, and must be at least 2, got {bins}")
        self.bins = bins

    def terms(self, pairs: ScoredPairs) -> Terms:
        return Terms.over(histogram(pairs.scores, pairs.positives, pairs.negatives, bins=self.bins), 1)

    def compute(self, program: PairProgram, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if 0 in program.source.shape:
            return program.compute(x, y)
        pairs = _NodeSlopes(self.bins)
        inner = _SlopeProgram(pairs, program.batch, program.source, pairs.terms, outer=program)
        with torch.no_grad():
            value = pairs.solve(inner, x, y)
        linear, _ = inner.compute(x, y)
        return linear + (value.to(linear) - linear).detach(), torch.ones((), dtype=torch.bool, device=x.device)


class _NodeSlopes(Loss):
    """The histogram loss as a sum over pairs: with both histograms known, it is linear in a score between two nodes."""

    kind = "pair"
    elementwise = True

    def __init__(self, bins: int) -> None:
        super().__init__("sum")
        self.bins = bins

    def solve(self, program: PairProgram, x: Tensor, y: Tensor) -> Tensor:
        """Sum the histograms over all tiles, and return the loss."""
        sums = torch.zeros(2, self.bins, dtype=torch.float64, device=x.device)
        for tile in program.plan():
            _, inputs = program.read(tile, x, y)
            assert inputs.relation is not None
            position = (inputs.raw + 1.0) * ((self.bins - 1) / 2)
            for side, mask in enumerate((inputs.relation.positives, inputs.relation.negatives)):
                sums[side] += soft_histogram(position, mask, self.bins).sum(dim=0, dtype=torch.float64)
        counts = sums.sum(dim=1, keepdim=True).clamp(min=1.0)
        positive, negative = sums / counts
        below: Tensor = positive.cumsum(0)
        # derivatives by the nodes of both histograms, and from them by the position of a pair between two nodes
        by_node = torch.stack([negative.flip(0).cumsum(0).flip(0), below])
        copies = 2.0 if program.plan()[0].is_upper else 1.0
        steps = by_node.diff(dim=1) / (counts * copies) * ((self.bins - 1) / 2)
        self._slopes = functional.pad(steps, (1, 1)).to(x.dtype)  # zero outside the nodes
        value: Tensor = (negative * below).sum()
        return value

    def terms(self, pairs: ScoredPairs) -> Terms:
        """Products of scores and slopes: their gradient is that of the histogram loss, their sum is not its value."""
        position = (pairs.scores.detach() + 1.0) * ((self.bins - 1) / 2)
        index = (position.long() + 1).clamp_(0, self.bins).mul_(position > 0)
        slopes = self._slopes[1].take(index)
        rows, columns = pairs.positives.nonzero(as_tuple=True)
        slopes[rows, columns] = self._slopes[0].take(index[rows, columns])
        slopes *= mask_to_float(union(pairs.positives, pairs.negatives), slopes)
        return Terms.over(pairs.scores * slopes, 1)


@dataclass(frozen=True)
class _SlopeProgram(PairProgram):
    outer: PairProgram

    @property
    def is_plain(self) -> bool:
        return False  # the slopes are constants of this batch

    def evaluate_whole(self, x: Tensor, y: Tensor) -> Terms:
        return self.outer.evaluate_whole(x, y)
