"""Scores of the nearest item, for queries whose class is in the gallery and for queries whose class is not."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.query_gallery import QueryGallery
from kinfold.metrics._ranking.relevance import Relevance
from kinfold.metrics.verification_curve import score_blocks


@dataclass(frozen=True)
class OpenSetScores:
    """Scores of the nearest gallery item; higher is closer, whatever the distance.

    Args:
        known: Of queries whose class is in the gallery, (K,) float32.
        is_correct: Whether the nearest item of such a query is of its class, (K,) bool.
        unknown: Of queries whose class is not in the gallery, (U,) float32. Within one set: of every query, when its
            class is left out.
    """

    known: Tensor
    is_correct: Tensor
    unknown: Tensor

    def identification_rate(self, far: float) -> float:
        """Return the share of known queries that are accepted with the right class.

        Args:
            far: The share of unknown queries that may be accepted. The threshold is the lowest that keeps it.
        """
        known, unknown = self.known.shape[0], self.unknown.shape[0]
        if not (known and unknown):
            return math.nan
        shares = torch.arange(1, unknown + 1, dtype=torch.float64, device=self.unknown.device) / unknown
        allowed = int((shares <= far).sum())
        accepted = self.is_correct
        if allowed < unknown:  # above the first unknown query that is one too many
            accepted = accepted & (self.known > self.unknown.sort(descending=True).values[allowed])
        return float(accepted.double().mean())

    def roc_auc(self) -> float:
        """Return P(known > unknown) + P(equal) / 2."""
        known, unknown = self.known.shape[0], self.unknown.shape[0]
        if not (known and unknown):
            return math.nan
        ordered = self.unknown.sort().values
        below = torch.searchsorted(ordered, self.known).double()
        not_above = torch.searchsorted(ordered, self.known, right=True).double()
        return float((below + not_above).sum() / (2.0 * known * unknown))


def compute_open_set_scores(
    query_gallery: QueryGallery,
    relevance: Relevance,
    is_correct: Tensor,
    world: World,
    progress: Callable[[float], None] | None = None,
) -> OpenSetScores:
    """Find the score of the nearest item of every query, and of the nearest item of another class.

    Args:
        query_gallery: The rows.
        relevance: Their classes.
        is_correct: One where the nearest item of a query is of its class, (Q,).
        world: The processes that share the work.
        progress: Called with the share that is finished.
    """
    device = query_gallery.gallery.device
    best = torch.full((2, query_gallery.queries.shape[0]), -torch.inf, device=device)  # other classes first
    for i, j, scores in score_blocks(query_gallery, world, whole=True):
        if progress is not None:
            progress(i.start / best.shape[1])
        same_class = relevance.query_class[i][:, None] == relevance.gallery_class[j]
        of_others = scores.masked_fill(same_class, -torch.inf).amax(dim=1)
        best[0, i] = torch.maximum(best[0, i], of_others)
        if query_gallery.is_same_set:
            rows = torch.arange(i.start, i.stop, device=device)
            same_class &= rows[:, None] != torch.arange(j.start, j.stop, device=device)
        of_class = scores.masked_fill(~same_class, -torch.inf).amax(dim=1)
        best[1, i] = torch.maximum(best[1, i], of_class)
    world.maximize_in_place(best)
    known = relevance.counts > 0
    unknown = best[0] if query_gallery.is_same_set else best[0][relevance.query_class < 0]
    return OpenSetScores(best.amax(dim=0)[known], is_correct[known] == 1.0, unknown[unknown.isfinite()])
