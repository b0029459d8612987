"""Negatives drawn against the density of distances on the sphere (Wu et al., ICCV 2017)."""

import torch
from torch import Tensor

from kinfold.miners.drawing import choose, draw, or_all
from kinfold.miners.miner import Miner, similarities
from kinfold.pairs import Triplets, View
from kinfold.pairs.masks import lowered


def log_inverse_density(similarity: Tensor, dim: int, lower_cutoff: float) -> Tensor:
    """log 1/q(d) up to a constant, for d = max(lower_cutoff, sqrt(2 - 2 s)) between random points of the unit sphere.

    log w = (2 - D) log d - (D - 3)/2 log(1 - d^2/4)

    The printed formula of Roth et al. (2020) has 1 - d/4; the density has d^2.
    """
    squared = (2.0 - 2.0 * similarity).clamp(min=lower_cutoff**2)
    cap = (1.0 - 0.25 * squared).clamp(min=1e-8)  # antipodal points would give log 0
    return squared.log() * ((2 - dim) / 2) - cap.log() * ((dim - 3) / 2)


def negative_weights(
    similarity: Tensor, negatives: Tensor, dim: int, lower_cutoff: float, upper_cutoff: float | None
) -> Tensor:
    """(B, R) weights with maximum 1 per row; uniform over the negatives where none lies within the upper cutoff."""
    if similarity.shape[1] == 0:
        return similarity
    near = negatives if upper_cutoff is None else negatives & (2.0 - 2.0 * similarity <= upper_cutoff**2)
    logs = lowered(log_inverse_density(similarity, dim, lower_cutoff), near)
    weights = (logs - logs.amax(dim=1, keepdim=True)).exp_()  # one everywhere in a row without a near one
    return weights.mul_(or_all(near, negatives).view(torch.uint8))


class DistanceWeighted(Miner):
    """One uniform positive per anchor, one negative with probability ~ 1 / density of its distance.

    Distances are clamped below at `lower_cutoff`; negatives beyond `upper_cutoff` are left out (None keeps them, as the
    study of Roth et al. ran it); where none is left the draw is uniform over all negatives. An anchor without a
    positive is skipped, or kept as (a, a, n) with `keep_singletons`.
    """

    def __init__(
        self,
        lower_cutoff: float = 0.5,
        upper_cutoff: float | None = 1.4,
        keep_singletons: bool = False,
        switch: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator, switch)
        if lower_cutoff <= 0 or (upper_cutoff is not None and upper_cutoff < lower_cutoff):
            raise ValueError(f"need 0 < lower_cutoff <= upper_cutoff, got {lower_cutoff} and {upper_cutoff}")
        self.lower_cutoff = lower_cutoff
        self.upper_cutoff = upper_cutoff
        self.keep_singletons = keep_singletons

    def mine(self, seen: View) -> Triplets:
        similarity = similarities(seen)
        dim = seen.anchors.shape[1]
        weights = negative_weights(similarity, seen.relation.negatives, dim, self.lower_cutoff, self.upper_cutoff)
        positive, has_positive = choose(seen.relation.positives, self.generator)
        negative, has_negative = draw(weights, self.generator)
        if self.keep_singletons:
            itself, present = self.own_index(seen)
            positive = torch.where(has_positive, positive, itself)
            has_positive = has_positive | present
        return self.triplets(seen, positive, negative, has_positive & has_negative)
