"""The selector that the released code of DRML calls distance weighted: the nearest negative, but none too near."""

import torch

from kinfold.miners.drawing import choose
from kinfold.miners.miner import Miner, sphere_distances
from kinfold.pairs import Triplets, View
from kinfold.pairs.masks import lowered


class DRMLHard(Miner):
    """A uniform positive, and the negative at the smallest distance max(d(a,n), c), the first of several.

    c is the smaller of `cutoff` and the largest distance of any positive pair of the batch. All negatives within c tie,
    and the first of them in the batch is taken: its place, not its distance, decides. An anchor without a positive or a
    negative is skipped, where the released code raises or takes a positive for a negative.

    Zheng et al., ICCV 2021, as released; `distance-weighted` is the method (Wu et al., ICCV 2017) that its tables name.
    """

    by_rows = False  # c depends on the whole batch

    def __init__(self, cutoff: float = 0.5, generator: torch.Generator | None = None) -> None:
        super().__init__(generator)
        if cutoff < 0:
            raise ValueError(f"cutoff is a distance from 0 up, got {cutoff}")
        self.cutoff = cutoff

    def mine(self, seen: View) -> Triplets:
        relation = seen.relation
        positive, _ = choose(relation.positives, self.generator)
        if relation.positives.numel() == 0:
            return self.triplets(seen, positive, positive, relation.has_both())
        distance = sphere_distances(seen)
        # below zero where there is no positive pair at all, and then nobody has a triplet
        farthest = lowered(distance, relation.positives).amax()
        clamped = distance.clamp_min(farthest.clamp(0.0, self.cutoff))
        negative = lowered(-clamped, relation.negatives).argmax(dim=1)
        return self.triplets(seen, positive, negative, relation.contains(positive, negative))
