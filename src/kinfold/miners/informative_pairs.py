"""Multi-similarity mining: pairs that are hard against the other side of their anchor (Wang et al., CVPR 2019)."""

from torch import Tensor

from kinfold.miners.miner import Miner, compute_similarities
from kinfold.pairs import PairBatch, Relation
from kinfold.pairs.masks import mask_out


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
    nearest = mask_out(similarity, negatives).amax(dim=1, keepdim=True)
    farthest = -mask_out(-similarity, positives).amax(dim=1, keepdim=True)
    return positives & (similarity < nearest + epsilon), negatives & (similarity > farthest - epsilon)


class MultiSimilarityMiner(Miner):
    """The pair selection of the multi-similarity loss, for use with any pair loss. Nothing is random.

    Args:
        epsilon: Tolerance: a pair is kept if it violates the order of similarities, or nearly does, by this much.
    """

    def __init__(self, epsilon: float = 0.1) -> None:
        super().__init__()
        self.epsilon = epsilon

    def mine(self, batch: PairBatch) -> Relation:
        positives, negatives = batch.relation.positives, batch.relation.negatives
        return Relation(*keep_informative(compute_similarities(batch), positives, negatives, epsilon=self.epsilon))
