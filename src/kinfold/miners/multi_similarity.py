"""Pairs that are informative against the other side of their anchor (Wang et al., CVPR 2019)."""

from torch import Tensor

from kinfold.miners.miner import Miner, similarities
from kinfold.pairs import Relation, View
from kinfold.pairs.masks import lowered


def keep_informative(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Positives less similar than the nearest negative + epsilon, negatives more similar than the farthest positive
    - epsilon. An anchor that lacks one side keeps nothing.

    positive j stays: s_ij - epsilon < max_k s_ik;   negative k stays: s_ik + epsilon > min_j s_ij
    """
    similarity = similarity.detach()
    if similarity.shape[1] == 0:
        return positives, negatives
    nearest = lowered(similarity, negatives).amax(dim=1, keepdim=True)
    farthest = -lowered(-similarity, positives).amax(dim=1, keepdim=True)
    return positives & (similarity < nearest + epsilon), negatives & (similarity > farthest - epsilon)


class MultiSimilarity(Miner):
    """The pair selection inside the multi-similarity loss, for use with any pair loss."""

    def __init__(self, epsilon: float = 0.1) -> None:
        super().__init__()
        self.epsilon = epsilon

    def mine(self, seen: View) -> Relation:
        similarity = similarities(seen)
        positives, negatives = seen.relation.positives, seen.relation.negatives
        return Relation(*keep_informative(similarity, positives, negatives, epsilon=self.epsilon))
