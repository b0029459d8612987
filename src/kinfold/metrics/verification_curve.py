"""ROC and precision-recall curves over all pairs, without ever holding all pairs.

The scores of positive pairs, sorted, are the thresholds at which the true-accept rate changes. Negative pairs only
have to be counted between two of them. Scores are float64 products rounded to float32, so that equal pairs tie.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.relevance import Relevance

MAX_EXACT_POSITIVES = 20_000_000  # with more positive pairs, scores are counted in bins
_BINS = 1 << 20
_ROWS_PER_BLOCK = 1024
_COLUMNS_PER_BLOCK = 1 << 14


@dataclass(frozen=True)
class VerificationCurve:
    """Counts of accepted pairs at every threshold, from the highest threshold down.

    A pair is accepted if its score is at least the threshold.

    Args:
        thresholds: Similarities, or distances for "euclidean", (m,).
        true_accepts: Accepted positive pairs, (m,) float64.
        false_accepts: Accepted negative pairs, (m,) float64.
        false_accepts_above: Negative pairs strictly above the threshold, (m,) float64.
        positives: The number of positive pairs.
        negatives: The number of negative pairs.
        exact: False if scores were counted in bins. All rates are exact at the thresholds in any case.
        max_area_error: How far `roc_auc` can be off because of the bins.
    """

    thresholds: Tensor
    true_accepts: Tensor
    false_accepts: Tensor
    false_accepts_above: Tensor
    positives: float
    negatives: float
    exact: bool
    max_area_error: float

    def roc(self) -> tuple[Tensor, Tensor]:
        """Return false-accept and true-accept rates, both from 0 to 1, as one polyline."""
        tpr, fpr = self.true_accepts / self.positives, self.false_accepts / self.negatives
        fpr_above = self.false_accepts_above / self.negatives
        zero, one = tpr.new_zeros(1), tpr.new_ones(1)
        # between two thresholds there are negative pairs alone: a step to the right, then the threshold itself
        xs = torch.cat([zero, torch.stack([fpr_above, fpr], dim=1).flatten(), one])
        ys = torch.cat([zero, torch.stack([torch.cat([zero, tpr[:-1]]), tpr], dim=1).flatten(), one])
        return xs, ys

    def precision_recall(self) -> tuple[Tensor, Tensor]:
        """Return recall, ascending, and precision at every threshold."""
        return self.true_accepts / self.positives, self.true_accepts / (self.true_accepts + self.false_accepts)

    def roc_auc(self) -> float:
        """Return the probability that a positive pair scores higher than a negative one, ties counting half."""
        if not (self.positives and self.negatives):
            return math.nan
        gained = torch.diff(self.true_accepts, prepend=self.true_accepts.new_zeros(1))
        below = self.negatives - (self.false_accepts + self.false_accepts_above) / 2
        return float((gained * below).sum() / (self.positives * self.negatives))

    def pr_auc(self) -> float:
        """Return the average precision: sum over thresholds of (recall gained) * precision."""
        if not self.positives:
            return math.nan
        recall, precision = self.precision_recall()
        return float((torch.diff(recall, prepend=recall.new_zeros(1)) * precision).sum())

    def equal_error_rate(self) -> float:
        """Return the false-accept rate where it equals the false-reject rate, along the ROC polyline."""
        if not (self.positives and self.negatives):
            return math.nan
        fpr, tpr = self.roc()
        gap = fpr - (1.0 - tpr)
        crossing = int((gap >= 0).nonzero()[0])
        if crossing == 0 or float(gap[crossing]) == 0.0:
            return float(fpr[crossing])
        share = float(-gap[crossing - 1] / (gap[crossing] - gap[crossing - 1]))
        return float(fpr[crossing - 1] + share * (fpr[crossing] - fpr[crossing - 1]))

    def tar_at_far(self, far: float) -> float:
        """Return the highest true-accept rate at a threshold whose false-accept rate is at most `far`."""
        if not (self.positives and self.negatives):
            return math.nan
        allowed = self._count_allowed(far)
        return float(self.true_accepts[allowed - 1] / self.positives) if allowed else 0.0

    def threshold_at_far(self, far: float) -> float:
        """Return the last threshold whose false-accept rate is at most `far`, NaN if there is none.

        It is the score of a positive pair: the true-accept rate there is `tar_at_far(far)`.
        """
        if not (self.positives and self.negatives):
            return math.nan
        allowed = self._count_allowed(far)
        return float(self.thresholds[allowed - 1]) if allowed else math.nan

    def _count_allowed(self, far: float) -> int:
        """Return how many thresholds, from the strictest on, have a false-accept rate of at most `far`."""
        return int((self.false_accepts / self.negatives <= far).sum())


def compute_curve(
    query_gallery: QueryGallery,
    relevance: Relevance,
    world: World,
    max_exact_positives: int = MAX_EXACT_POSITIVES,
    progress: Callable[[float], None] | None = None,
) -> VerificationCurve:
    """Return the curve of all pairs; within one set each pair counts once."""
    positives = int(relevance.counts.sum()) // (2 if query_gallery.is_same_set else 1)
    rows = query_gallery.queries.shape[0]
    pairs = rows * (rows - 1) // 2 if query_gallery.is_same_set else rows * query_gallery.size
    if positives == 0:
        empty = torch.zeros(0, dtype=torch.float64, device=query_gallery.gallery.device)
        return VerificationCurve(empty, empty, empty, empty, 0.0, float(pairs), True, 0.0)
    exact = positives <= max_exact_positives
    edges = _list_positive_scores(query_gallery, relevance) if exact else _list_bin_edges(query_gallery)
    counts = _count_between(edges, query_gallery, relevance, world, progress)  # (2, 2m + 1), negatives first
    counts[0, 0] += pairs - int(counts.sum())
    # slot 2e counts scores below edge e (and above e - 1), slot 2e + 1 those equal to it
    from_here = counts.flip(1).cumsum(1).flip(1).double()
    false_accepts, true_accepts = from_here[0][1::2], from_here[1][1::2]
    false_accepts_above = false_accepts - counts[0][1::2]
    mixed = 0.0 if exact else float((counts[0, ::2][:-1].double() * counts[1, ::2][:-1]).sum())
    occurs = counts[1][1::2] > 0 if exact else torch.ones_like(edges, dtype=torch.bool)
    order = occurs.nonzero().squeeze(1).flip(0)
    return VerificationCurve(
        query_gallery.convert_scores(edges[order].double()),
        true_accepts[order],
        false_accepts[order],
        false_accepts_above[order],
        float(counts[1].sum()),
        float(counts[0].sum()),
        exact,
        mixed / max(1.0, float(counts[1].sum()) * float(counts[0].sum())),
    )


def _count_between(
    edges: Tensor,
    query_gallery: QueryGallery,
    relevance: Relevance,
    world: World,
    progress: Callable[[float], None] | None,
) -> Tensor:
    """Count negative and positive pairs below, at and between edges (m,), (2, 2m + 1); the lowest may be missing."""
    # in float32, where searching costs half; the last edge is +inf so that every score has one
    closed_edges = torch.cat([edges, edges.new_full((1,), torch.inf)])
    counts = torch.zeros(2, 2 * edges.shape[0] + 1, dtype=torch.int64, device=edges.device)
    # pairs below every positive pair are counted by the caller; rounding could lower a positive pair by a little
    lowest = torch.nextafter(torch.nextafter(edges[0], -closed_edges[-1]), -closed_edges[-1])
    for i, j, scores in score_blocks(query_gallery, world):
        if progress is not None:
            progress(i.start / query_gallery.queries.shape[0])
        above = scores >= lowest
        if query_gallery.is_same_set and j.start < i.stop:
            above &= torch.arange(i.start, i.stop, device=above.device)[:, None] < torch.arange(
                j.start, j.stop, device=above.device
            )
        row, column = above.nonzero(as_tuple=True)
        values = scores[row, column]
        edge = torch.searchsorted(edges, values)
        slot = 2 * edge + (closed_edges[edge] == values)
        is_positive = relevance.query_class[i][row] == relevance.gallery_class[j][column]
        counts[0] += torch.bincount(slot[~is_positive], minlength=counts.shape[1])
        counts[1] += torch.bincount(slot[is_positive], minlength=counts.shape[1])
    world.sum_in_place(counts)
    return counts


def _list_positive_scores(query_gallery: QueryGallery, relevance: Relevance) -> Tensor:
    """Return the distinct scores of positive pairs, ascending, float32."""
    parts = []
    for block in torch.split(relevance.order_queries(), _ROWS_PER_BLOCK):
        classes, lengths = torch.unique_consecutive(relevance.query_class[block], return_counts=True)
        for label, query_ids in zip(classes.tolist(), torch.split(block, lengths.tolist()), strict=True):
            start, size = int(relevance.start[label]), int(relevance.size[label])
            members = relevance.members[start : start + size]
            scores = _score(query_gallery, query_gallery.queries[query_ids], query_gallery.gallery[members])
            parts.append(scores[members > query_ids[:, None]] if query_gallery.is_same_set else scores.flatten())
    distinct: Tensor = torch.unique(torch.cat(parts))
    return distinct


def _list_bin_edges(query_gallery: QueryGallery) -> Tensor:
    """Return evenly spaced scores over all that can occur."""
    longest = [
        float(torch.linalg.vector_norm(x.double(), dim=1).max()) for x in (query_gallery.queries, query_gallery.gallery)
    ]
    device = query_gallery.gallery.device
    if query_gallery.distance == "euclidean":
        return torch.linspace(-((longest[0] + longest[1]) ** 2), 0.0, _BINS, device=device)
    largest = longest[0] * longest[1]
    if query_gallery.hyperbolic is not None:
        return torch.linspace(-2.0 * largest, 0.0, _BINS, device=device)
    return torch.linspace(-largest, largest, _BINS, device=device)


def score_blocks(
    query_gallery: QueryGallery, world: World, whole: bool = False
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield (rows, columns, float32 scores) of all pairs, each process its share of the blocks.

    Args:
        query_gallery: The rows.
        world: The processes that share the work.
        whole: Whether blocks below the diagonal are needed too, within one set.
    """
    rows, columns = query_gallery.queries.shape[0], query_gallery.size
    starts = [(i, j) for i in range(0, rows, _ROWS_PER_BLOCK) for j in range(0, columns, _COLUMNS_PER_BLOCK)]
    if query_gallery.is_same_set and not whole:
        starts = [(i, j) for i, j in starts if j + _COLUMNS_PER_BLOCK > i]
    for i, j in starts[world.rank :: world.size]:
        left, right = slice(i, min(rows, i + _ROWS_PER_BLOCK)), slice(j, min(columns, j + _COLUMNS_PER_BLOCK))
        yield left, right, _score(query_gallery, query_gallery.queries[left], query_gallery.gallery[right])


def _score(query_gallery: QueryGallery, x: Tensor, y: Tensor) -> Tensor:
    return query_gallery.score_matrix(x.double(), y.double()).float()
