"""Is a pair kin or not? ROC and precision-recall curves over all pairs, without ever holding them.

The scores of positive pairs, sorted, are the thresholds at which the true-positive rate changes; every other pair only
has to be counted between two of them. Scores are float64 products rounded to float32, so that equal pairs tie.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.relevance import Relevance

MOST_POSITIVES = 20_000_000  # above, scores fall into bins
_BINS = 1 << 20
_BLOCK = 1024
_COLUMNS = 1 << 14


@dataclass(frozen=True)
class Curve:
    """Counts at every threshold, from the highest down: pairs with a score of at least `threshold`.

    threshold: (m,) as users read it (similarity, or distance); kin, others: (m,) counts float64; others_above: (m,)
    others strictly above the threshold; positives, negatives: how many there are in all.
    exact: False where scores fell into bins; then every rate is right at the thresholds given, and an area is off by
    at most `bound`.
    """

    threshold: Tensor
    kin: Tensor
    others: Tensor
    others_above: Tensor
    positives: float
    negatives: float
    exact: bool
    bound: float

    def roc(self) -> tuple[Tensor, Tensor]:
        """False-positive and true-positive rates, both from 0 to 1, as one polyline."""
        tpr, fpr = self.kin / self.positives, self.others / self.negatives
        above = self.others_above / self.negatives
        zero, one = tpr.new_zeros(1), tpr.new_ones(1)
        # between two thresholds only others are met: a step to the right, then the threshold itself
        xs = torch.cat([zero, torch.stack([above, fpr], dim=1).flatten(), one])
        ys = torch.cat([zero, torch.stack([torch.cat([zero, tpr[:-1]]), tpr], dim=1).flatten(), one])
        return xs, ys

    def precision_recall(self) -> tuple[Tensor, Tensor]:
        """Recall ascending, and precision, at every threshold."""
        return self.kin / self.positives, self.kin / (self.kin + self.others)

    def roc_auc(self) -> float:
        """The chance that a positive pair scores higher than a negative one, ties counting half."""
        if not (self.positives and self.negatives):
            return math.nan
        gained = torch.diff(self.kin, prepend=self.kin.new_zeros(1))
        below = self.negatives - (self.others + self.others_above) / 2
        return float((gained * below).sum() / (self.positives * self.negatives))

    def pr_auc(self) -> float:
        """Average precision: sum over thresholds of (recall gained) * precision."""
        if not self.positives:
            return math.nan
        recall, precision = self.precision_recall()
        return float((torch.diff(recall, prepend=recall.new_zeros(1)) * precision).sum())

    def equal_error_rate(self) -> float:
        """Where the false-positive rate equals the false-negative rate, along the ROC polyline."""
        if not (self.positives and self.negatives):
            return math.nan
        fpr, tpr = self.roc()
        gap = fpr - (1.0 - tpr)
        place = int((gap >= 0).nonzero()[0])
        if place == 0 or float(gap[place]) == 0.0:
            return float(fpr[place])
        share = float(-gap[place - 1] / (gap[place] - gap[place - 1]))
        return float(fpr[place - 1] + share * (fpr[place] - fpr[place - 1]))

    def tar_at_far(self, far: float) -> float:
        """The highest true-accept rate at a threshold whose false-accept rate is at most `far`."""
        if not (self.positives and self.negatives):
            return math.nan
        allowed = self.others / self.negatives <= far
        return float(self.kin[allowed].max() / self.positives) if bool(allowed.any()) else 0.0


def pooled_curve(
    comparison: QueryGallery,
    relevance: Relevance,
    world: World,
    most: int = MOST_POSITIVES,
    progress: Callable[[float], None] | None = None,
) -> Curve:
    """All pairs in one pool; within one set each pair once."""
    positives = int(relevance.counts.sum()) // (2 if comparison.same else 1)
    rows = comparison.queries.shape[0]
    pairs = rows * (rows - 1) // 2 if comparison.same else rows * comparison.size
    if positives == 0:
        nothing = torch.zeros(0, dtype=torch.float64, device=comparison.gallery.device)
        return Curve(nothing, nothing, nothing, nothing, 0.0, float(pairs), True, 0.0)
    exact = positives <= most
    edges = _positive_scores(comparison, relevance) if exact else _bins(comparison)
    # in float32, where searching costs half; edge m is +inf so that nothing falls off
    values = torch.cat([edges, edges.new_full((1,), torch.inf)])
    tally = torch.zeros(2, 2 * edges.shape[0] + 1, dtype=torch.int64, device=edges.device)
    # what lies below every positive pair only has to be counted; rounding could put one of them a little lower
    lowest = torch.nextafter(torch.nextafter(edges[0], -values[-1]), -values[-1])
    for i, j, scores in _blocks(comparison, world):
        if progress is not None:
            progress(i.start / rows)
        above = scores >= lowest
        if comparison.same and j.start < i.stop:
            above &= torch.arange(i.start, i.stop, device=above.device)[:, None] < torch.arange(
                j.start, j.stop, device=above.device
            )
        row, column = above.nonzero(as_tuple=True)
        found = scores[row, column]
        below = torch.searchsorted(edges, found)
        place = 2 * below + (values[below] == found)
        kin = relevance.query_class[i][row] == relevance.gallery_class[j][column]
        tally[0] += torch.bincount(place[~kin], minlength=tally.shape[1])
        tally[1] += torch.bincount(place[kin], minlength=tally.shape[1])
    world.sum_in_place(tally)
    tally[0, 0] += pairs - int(tally.sum())
    # slot 2e holds what lies below edge e (and above e - 1), slot 2e + 1 what equals it
    from_here = tally.flip(1).cumsum(1).flip(1).double()
    others, kin_count = from_here[0][1::2], from_here[1][1::2]
    above = others - tally[0][1::2]
    bound = 0.0 if exact else float((tally[0, ::2][:-1].double() * tally[1, ::2][:-1]).sum())
    met = tally[1][1::2] > 0 if exact else torch.ones_like(edges, dtype=torch.bool)
    order = met.nonzero().squeeze(1).flip(0)
    return Curve(
        comparison.values(edges[order].double()),
        kin_count[order],
        others[order],
        above[order],
        float(tally[1].sum()),
        float(tally[0].sum()),
        exact,
        bound / max(1.0, float(tally[1].sum()) * float(tally[0].sum())),
    )


def _positive_scores(comparison: QueryGallery, relevance: Relevance) -> Tensor:
    """Distinct scores of positive pairs, ascending, float32."""
    found = []
    order = relevance.order()
    for which in torch.split(order, _BLOCK):
        kinds, length = torch.unique_consecutive(relevance.query_class[which], return_counts=True)
        for kind, part in zip(kinds.tolist(), torch.split(which, length.tolist()), strict=True):
            start, size = int(relevance.start[kind]), int(relevance.size[kind])
            members = relevance.members[start : start + size]
            scores = _scores(comparison, comparison.queries[part], comparison.gallery[members])
            found.append(scores[members > part[:, None]] if comparison.same else scores.flatten())
    distinct: Tensor = torch.unique(torch.cat(found))
    return distinct


def _bins(comparison: QueryGallery) -> Tensor:
    """Evenly spaced scores over all that can occur."""
    longest = [
        float(torch.linalg.vector_norm(x.double(), dim=1).max()) for x in (comparison.queries, comparison.gallery)
    ]
    if comparison.distance == "euclidean":
        return torch.linspace(-((longest[0] + longest[1]) ** 2), 0.0, _BINS, device=comparison.gallery.device)
    reach = longest[0] * longest[1]
    return torch.linspace(-reach, reach, _BINS, device=comparison.gallery.device)


def _blocks(comparison: QueryGallery, world: World) -> Iterator[tuple[slice, slice, Tensor]]:
    """(rows, columns, float32 scores) of all pairs; within one set only blocks on and above the diagonal."""
    rows, columns = comparison.queries.shape[0], comparison.size
    starts = [(i, j) for i in range(0, rows, _BLOCK) for j in range(0, columns, _COLUMNS)]
    if comparison.same:
        starts = [(i, j) for i, j in starts if j + _COLUMNS > i]
    for i, j in starts[world.rank :: world.size]:
        left, right = slice(i, min(rows, i + _BLOCK)), slice(j, min(columns, j + _COLUMNS))
        yield left, right, _scores(comparison, comparison.queries[left], comparison.gallery[right])


def _scores(comparison: QueryGallery, x: Tensor, y: Tensor) -> Tensor:
    x, y = x.double(), y.double()
    if comparison.distance != "euclidean":
        return (x @ y.T).float()
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square_().neg_().float()
