"""Accept rates of every class at thresholds that are common to all: what the consistency of operating points needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.relevance import Relevance
from kinfold.metrics.verification_curve import VerificationCurve, score_blocks

FAR_RANGE = (0.1, 0.01)  # of all pairs, at the first and at the last threshold
_THRESHOLDS = 33


@dataclass(frozen=True)
class ClassRates:
    """Accept rates of classes, at thresholds from the widest to the strictest.

    Args:
        thresholds: Similarities, or distances for "euclidean", (L,) float64; empty if no false-accept rate is defined.
        true_accept_rates: Share of accepted pairs of two items of the class, (C, L) float64. Classes without such a
            pair are left out.
        false_accept_rates: Share of accepted pairs of an item of the class and one of another class, (C, L) float64.
    """

    thresholds: Tensor
    true_accept_rates: Tensor
    false_accept_rates: Tensor

    def utilities(self) -> Tensor:
        """Return 2 TAR (1 - FAR) / (TAR + 1 - FAR) of each class at each threshold, (C, L); 0 where both are 0."""
        accepted, rejected = self.true_accept_rates, 1.0 - self.false_accept_rates
        return 2.0 * accepted * rejected / (accepted + rejected).clamp(min=torch.finfo(torch.float64).tiny)

    def inconsistency(self) -> float:
        """Return the variance of utilities over classes, averaged over thresholds."""
        utilities = self.utilities()
        if utilities.numel() == 0:
            return math.nan
        return float((utilities - utilities.mean(dim=0)).square().mean())


def compute_class_rates(
    query_gallery: QueryGallery,
    relevance: Relevance,
    curve: VerificationCurve,
    world: World,
    progress: Callable[[float], None] | None = None,
) -> ClassRates:
    """Count accepted pairs of each class.

    Args:
        query_gallery: The rows.
        relevance: Their classes.
        curve: Of all pairs; places the thresholds.
        world: The processes that share the work.
        progress: Called with the share that is finished.
    """
    device = query_gallery.gallery.device
    first, last = (curve.threshold_at_far(far) for far in FAR_RANGE)
    if math.isnan(first) or math.isnan(last):
        empty = torch.zeros(0, dtype=torch.float64, device=device)
        return ClassRates(empty, empty.new_zeros(0, 0), empty.new_zeros(0, 0))
    thresholds = torch.linspace(first, last, _THRESHOLDS, dtype=torch.float64)
    thresholds[0], thresholds[-1] = first, last
    thresholds = thresholds.to(device)
    sign = -1.0 if query_gallery.has_distances else 1.0  # edges ascend, whatever the distance
    edges, classes = sign * thresholds, relevance.size.shape[0]
    counts = torch.zeros(2, classes * _THRESHOLDS, dtype=torch.int64, device=device)  # negatives first
    for i, j, scores in score_blocks(query_gallery, world, whole=True):
        if progress is not None:
            progress(i.start / query_gallery.queries.shape[0])
        values = sign * query_gallery.convert_scores(scores.double())
        accepted = (values >= edges[0]) & (relevance.query_class[i] >= 0)[:, None]
        if query_gallery.is_same_set:
            rows = torch.arange(i.start, i.stop, device=device)
            accepted &= rows[:, None] != torch.arange(j.start, j.stop, device=device)
        row, column = accepted.nonzero(as_tuple=True)
        level = torch.searchsorted(edges, values[row, column], right=True) - 1
        label = relevance.query_class[i][row]
        slot = label * _THRESHOLDS + level
        is_positive = label == relevance.gallery_class[j][column]
        counts[0] += torch.bincount(slot[~is_positive], minlength=counts.shape[1])
        counts[1] += torch.bincount(slot[is_positive], minlength=counts.shape[1])
    world.sum_in_place(counts)
    # pairs that reach a threshold reach all wider ones
    accepts = counts.view(2, classes, _THRESHOLDS).flip(2).cumsum(2).flip(2).double()
    known = relevance.query_class[relevance.query_class >= 0]
    items = torch.bincount(known, minlength=classes)
    positives = items * (relevance.size - int(query_gallery.is_same_set))
    negatives = items * (query_gallery.size - relevance.size)
    has_pairs = (positives > 0) & (negatives > 0)
    return ClassRates(
        thresholds,
        accepts[1][has_pairs] / positives[has_pairs, None],
        accepts[0][has_pairs] / negatives[has_pairs, None],
    )
