"""Distance-weighted sampling: negatives drawn against the density of distances on the sphere (Wu et al., ICCV 2017)."""

import torch
from torch import Tensor

from kinfold.miners.drawing import draw_uniform, draw_weighted, fall_back
from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Triplets
from kinfold.pairs.masks import mask_out


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
    """Sampling weights (B, R) with maximum 1 per row; uniform over all negatives if none is within the upper cutoff."""
    if similarity.shape[1] == 0:
        return similarity
    near = negatives if upper_cutoff is None else negatives & (2.0 - 2.0 * similarity <= upper_cutoff**2)
    logs = mask_out(log_inverse_density(similarity, dim, lower_cutoff), near)
    # one everywhere in a row without a near negative; e^-80 is far below rounding, and subnormal numbers are slow
    weights = (logs - logs.amax(dim=1, keepdim=True)).clamp_(min=-80.0).exp_()
    return weights.mul_(fall_back(near, negatives).view(torch.uint8))


class DistanceWeightedMiner(Miner):
    """Draw one uniform positive per anchor, and one negative with probability ~ 1 / density of its distance.

    Args:
        lower_cutoff: Smaller distances are treated as this distance.
        upper_cutoff: Negatives at larger distances are not drawn, unless an anchor has no others; then the draw is
            uniform over all its negatives. None has no limit, as in the experiments of Roth et al. (2020).
        keep_singletons: Whether an anchor without a positive yields the triplet (a, a, n); otherwise it yields none.
        switch: Probability of replacing a triplet by (a, a, n) with n of the class of a, see `Miner`.
        generator: Source of random numbers; by default a new one with seed 0.
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

    def mine(self, batch: PairBatch) -> Triplets:
        similarity = self.compute_similarities(batch)
        dim = batch.anchors.shape[1]
        weights = negative_weights(similarity, batch.relation.negatives, dim, self.lower_cutoff, self.upper_cutoff)
        positive, has_positive = draw_uniform(batch.relation.positives, self.generator)
        negative, has_negative = draw_weighted(weights, self.generator)
        if self.keep_singletons:
            anchor, is_reference = self.find_anchors(batch)
            positive = torch.where(has_positive, positive, anchor)
            has_positive = has_positive | is_reference
        return self.make_triplets(batch, positive, negative, has_positive & has_negative)
