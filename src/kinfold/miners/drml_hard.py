"""The triplet selection in the released code of DRML: the nearest negative with a lower limit on distances."""

import torch

from kinfold.miners.drawing import draw_uniform
from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Triplets
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_out


class DRMLHardMiner(Miner):
    """Draw a uniform positive, and take the negative with the smallest max(d(a,n), c), the first one of equal ones.

    c is the smaller of `cutoff` and the largest distance of any positive pair of the batch. All negatives within c are
    equal, and the first of them in the batch is taken. An anchor without a positive or a negative has no triplet; the
    released code raises an error there or takes a positive for a negative.

    Zheng et al., ICCV 2021, as released. Their code calls it distance weighted; the method of that name (Wu et al.,
    ICCV 2017) is `distance-weighted`.

    Args:
        cutoff: Upper limit of c, a distance of unit vectors.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
        generator: Source of random numbers; by default a new one with seed 0.
    """

    supports_chunks = False  # c depends on the whole batch

    def __init__(
        self, cutoff: float = 0.5, distance: Distance | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(generator, distance=distance)
        if cutoff < 0:
            raise ValueError(f"cutoff must be a distance of at least 0, got {cutoff}")
        self.cutoff = cutoff

    def mine(self, batch: PairBatch) -> Triplets:
        relation = batch.relation
        positive, _ = draw_uniform(relation.positives, self.generator)
        if relation.positives.numel() == 0:
            return self.make_triplets(batch, positive, positive, relation.has_both())
        distance = self.compute_distances(batch)
        # below zero if there is no positive pair at all, and then no anchor has a triplet
        farthest = mask_out(distance, relation.positives).amax()
        clamped = distance.clamp_min(farthest.clamp(0.0, self.cutoff))
        negative = mask_out(-clamped, relation.negatives).argmax(dim=1)
        return self.make_triplets(batch, positive, negative, relation.contains_triplets(positive, negative))
