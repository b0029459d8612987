"""Multi-similarity mining: pairs that are hard against the other side of their anchor (Wang et al., CVPR 2019)."""

import torch
from torch import Tensor

from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Relation
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import get_columns, mask_out, set_columns


def keep_informative(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Keep the pairs that violate the order of similarities of their anchor, or nearly do.

    positive j is kept: s_ij - epsilon < max_k s_ik;   negative k is kept: s_ik + epsilon > min_j s_ij

    An anchor without positives or without negatives keeps nothing.

    Args:
        similarity: (B, R).
        positives, negatives: Boolean masks, (B, R).
        epsilon: Tolerance, a difference of similarities.

    Returns:
        The two narrower masks.
    """
    similarity = similarity.detach()
    if similarity.shape[1] == 0:
        return positives, negatives
    pushed = mask_out(similarity, negatives)  # the others lie below every limit
    nearest = pushed.amax(dim=1, keepdim=True)
    columns = get_columns(positives)
    if columns is None:
        farthest = -mask_out(-similarity, positives).amax(dim=1, keepdim=True)
        return positives & (similarity < nearest + epsilon), pushed > farthest - epsilon
    index, exists = columns  # positives are few and known: only they are compared
    few = similarity.gather(1, index)  # (B, W)
    farthest = -mask_out(-few, exists).amax(dim=1, keepdim=True)
    is_kept = exists & (few < nearest + epsilon)
    kept = torch.zeros_like(positives.view(torch.uint8)).scatter_add_(1, index, is_kept.view(torch.uint8))
    kept = kept.view(torch.bool)
    set_columns(kept, index, is_kept)
    return kept, pushed > farthest - epsilon


class MultiSimilarityMiner(Miner):
    """The pair selection of the multi-similarity loss, for use with any pair loss. Nothing is random.

    Args:
        epsilon: Tolerance: a pair is kept if it violates the order of similarities, or nearly does, by this much.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
    """

    def __init__(self, epsilon: float = 0.1, distance: Distance | None = None) -> None:
        super().__init__(distance=distance)
        self.epsilon = epsilon

    def mine(self, batch: PairBatch) -> Relation:
        positives, negatives = batch.relation.positives, batch.relation.negatives
        return Relation(*keep_informative(self.compute_similarities(batch), positives, negatives, epsilon=self.epsilon))
