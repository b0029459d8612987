"""Shares of accepted pairs for every pair of classes, at several thresholds: what resampling of classes needs."""

import math
from dataclasses import dataclass

import torch
from scipy.stats import t as student_t
from torch import Tensor

LEVELS = 64  # thresholds of a table: at 50 times the rate to a fiftieth of it, each 1.13 times the next
_SAMPLED_ROWS = 2048  # whose pairs place the thresholds
_ROW_BLOCK = 512
_FLOOR = 1e-9  # rates below count as this, so that they have a logarithm


@dataclass(frozen=True)
class ClassPairTable:
    """Accepted shares of pairs of items, by the classes of the two.

    Args:
        thresholds: Ascending, (L,) float64.
        shares: Share of pairs between class i and class j that score at least a threshold, (L, n, n) float32; the
            diagonal is zero.
    """

    thresholds: Tensor
    shares: Tensor

    def take(self, classes: Tensor) -> "ClassPairTable":
        """Return the table of some classes."""
        return ClassPairTable(self.thresholds, self.shares[:, classes][:, :, classes])

    def rates(self, counts: Tensor) -> Tensor:
        """Return false-accept rates of resampled classes, (L, R): two different classes, then an item of each.

        Args:
            counts: How often each class was drawn, (n, R).
        """
        counts = counts.to(self.shares.dtype)
        accepted = (torch.matmul(self.shares, counts) * counts).sum(dim=1)  # (L, R)
        total = counts.sum(dim=0).square() - counts.square().sum(dim=0)
        return (accepted / total).double()

    def limit_rates(self, confidence: float, new_classes: int | None = None) -> Tensor:
        """Return an upper limit of the false-accept rate among new classes at every threshold, (L, 1).

        log rate + t se sqrt(1 + n / m), where se is the jackknife standard error of log rate, leaving out one of the n
        classes at a time, t the quantile of Student's distribution with n - 1 degrees of freedom, and m the number of
        new classes: the rate among them varies too.

        Args:
            confidence: The level of the limit.
            new_classes: m; None: as many as there are here.
        """
        count = self.shares.shape[1]
        by_class = self.shares.sum(dim=2, dtype=torch.float64)  # (L, n)
        total = by_class.sum(dim=1, keepdim=True)
        without = ((total - 2 * by_class) / ((count - 1) * (count - 2))).clamp(min=_FLOOR).log()
        error = ((count - 1) * (without - without.mean(dim=1, keepdim=True)).square().mean(dim=1, keepdim=True)).sqrt()
        quantile = float(student_t.ppf(confidence, count - 1))
        widening = (1 + count / (new_classes or count)) ** 0.5
        rates = (total / (count * (count - 1))).clamp(min=_FLOOR)
        limits: Tensor = rates * (quantile * widening * error).exp()
        return limits

    def find_threshold(self, rates: Tensor, rate: float) -> Tensor:
        """Return the threshold of a rate for each column of `rates` (L, R), interpolated on a logarithmic scale."""
        logs = rates.clamp(min=_FLOOR).log()
        goal = torch.tensor(rate, dtype=torch.float64).log()
        # the first threshold that keeps the rate; limits of rates may rise again where few pairs are left
        above = (logs > goal).double().cumprod(dim=0).sum(dim=0).long().clamp(min=1, max=len(self.thresholds) - 1)
        high, low = logs.gather(0, above[None] - 1)[0], logs.gather(0, above[None])[0]
        share = ((high - goal) / (high - low).clamp(min=1e-12)).clamp(0.0, 1.0)
        return self.thresholds[above - 1] + share * (self.thresholds[above] - self.thresholds[above - 1])

    def rate_at(self, threshold: Tensor | float, rates: Tensor) -> Tensor:
        """Return the rate at a threshold (R,) for each column of `rates` (L, R), interpolated."""
        goal = torch.as_tensor(threshold, dtype=torch.float64).expand(rates.shape[1])
        above = torch.searchsorted(self.thresholds, goal.contiguous()).clamp(1, len(self.thresholds) - 1)
        left, right = self.thresholds[above - 1], self.thresholds[above]
        share = ((goal - left) / (right - left).clamp(min=1e-12)).clamp(0.0, 1.0)
        logs = rates.clamp(min=_FLOOR).log()
        value = logs.gather(0, above[None] - 1)[0] * (1 - share) + logs.gather(0, above[None])[0] * share
        return torch.where(value <= math.log(_FLOOR) + 1e-6, 0.0, value.exp())


def build_table(rows: Tensor, labels: Tensor, rate: float, generator: torch.Generator) -> ClassPairTable:
    """Count pairs of all classes around the threshold of a rate.

    Args:
        rows: Unit vectors, float32 (N, d).
        labels: Class numbers from 0 without gaps, (N,).
        rate: The rate that matters.
        generator: Draws the pairs that place the thresholds.
    """
    thresholds = _place_thresholds(rows, labels, rate, generator)
    count, levels = int(labels.max()) + 1, len(thresholds)
    order = labels.argsort(stable=True)
    rows, labels = rows[order], labels[order]
    sizes = torch.bincount(labels, minlength=count)
    counts = torch.zeros(count, count, levels, dtype=torch.float32)
    flat = counts.view(-1)
    edges = thresholds.float()
    for block in torch.split(torch.arange(len(rows)), _ROW_BLOCK):
        scores = rows[block] @ rows.T
        query, column = (scores >= edges[0]).nonzero(as_tuple=True)
        level = torch.searchsorted(edges, scores[query, column], right=True) - 1
        slot = (labels[block][query] * count + labels[column]) * levels + level
        flat.index_add_(0, slot, torch.ones(len(slot)))
    shares = counts.flip(2).cumsum(2).flip(2) / (sizes[:, None] * sizes).float()[..., None]
    shares[torch.arange(count), torch.arange(count)] = 0.0
    return ClassPairTable(thresholds, shares.permute(2, 0, 1).contiguous())


def _place_thresholds(rows: Tensor, labels: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Return thresholds at rates spaced evenly on a logarithmic scale around `rate`, (L,)."""
    drawn = torch.randperm(len(rows), generator=generator)[:_SAMPLED_ROWS]
    scores = rows[drawn] @ rows[drawn].T
    values = scores[labels[drawn][:, None] != labels[drawn]].double().sort(descending=True).values
    highest = min(0.9, 50 * rate)
    goals = torch.logspace(0, 1, LEVELS - 2, dtype=torch.float64).log10()  # 0 to 1
    wanted = highest * (rate / 50 / highest) ** goals
    positions = (wanted * len(values)).long().clamp(max=len(values) - 1)
    thresholds = torch.cat([values[positions], values.new_tensor([float(values[0]) + 1e-6, 1.0 + 1e-6])])
    # levels beyond the largest score that was drawn
    distinct: Tensor = torch.unique(thresholds)
    return distinct
