"""Cascaded embeddings: deeper learners get the harder pairs (HDC).

Yuan et al., "Hard-Aware Deeply Cascaded Embedding", ICCV 2017. Learner 1 learns from all pairs of a batch, learner k
from the share h_k of the positive and of the negative pairs that are hardest for learner k - 1, among those that it
had itself. The embedding is the concatenation of all learners.

    parts k = 1 .. K    v_k = normalize(F_k(y)),  F_k with k - 1 hidden layers
    pairs of part k     the round(h_k P) farthest of P positives and round(h_k N) nearest of N negatives by v_(k-1)

Not as published: the learners of the paper branch off at three depths of the network; here they branch off behind it,
and differ in the number of their hidden layers. The authors' code (github.com/PkuRainBow/HDC.caffe) has such a share,
`hard_ratio`, and a factor of 10 for each learner's loss, but the shares of their runs were not to be found: these are
those that the paper is said to use, of all pairs of the batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kinfold.models.ensemble import Ensemble, PartsOutput, divide_evenly, normalize_parts
from kinfold.pairs import Relation


class CascadedHeads(Ensemble):
    """Learners of growing depth that learn from pairs of growing hardness. See the module.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings, a multiple of the number of `shares`.
        shares: h_1 .. h_K, the share of the pairs that each learner learns from; they do not grow.
        hidden: Units of hidden layers; `width` if left out.
        representation_weight: Weight of the loss of the complete embedding.

    Raises:
        ValueError: A share is not in (0, 1], shares grow, or their number does not divide `dim`.

    Examples:
        >>> head = CascadedHeads(width=8, dim=6)
        >>> head(torch.ones(2, 8)).parts.shape, head.eval()(torch.ones(2, 8)).shape
        (torch.Size([2, 3, 2]), torch.Size([2, 6]))
    """

    def __init__(
        self,
        width: int,
        dim: int,
        shares: Sequence[float] = (1.0, 0.5, 0.2),
        hidden: int | None = None,
        representation_weight: float = 0.0,
    ) -> None:
        if not shares or not all(0 < share <= 1 for share in shares) or [*shares] != sorted(shares, reverse=True):
            raise ValueError(f"shares must be in (0, 1] and not grow, got {[*shares]}")
        super().__init__(len(shares), divide_evenly(dim, len(shares), "dim"), representation_weight)
        self.shares = tuple(shares)
        units = width if hidden is None else hidden
        self.learners = nn.ModuleList()
        for depth in range(len(shares)):
            layers: list[nn.Module] = []
            for number in range(depth):
                layers += [nn.Linear(units if number else width, units), nn.ReLU()]
            self.learners.append(nn.Sequential(*layers, nn.Linear(units if depth else width, self.part_dim)))

    def output(self, features: Tensor) -> PartsOutput:
        parts = normalize_parts(torch.stack([learner(features) for learner in self.learners], dim=1))
        return PartsOutput(parts.flatten(1), parts)

    def select_pairs(self, output: PartsOutput, relation: Relation) -> list[Relation]:
        relations = [keep_hardest(relation, torch.zeros(()), self.shares[0], relation)]
        for share, rows in zip(self.shares[1:], output.parts.detach().unbind(dim=1), strict=False):
            relations.append(keep_hardest(relations[-1], rows @ rows.T, share, relation))
        return relations


def keep_hardest(candidates: Relation, similarity: Tensor, share: float, everything: Relation) -> Relation:
    """Keep the hardest candidates of both signs, as many as a share of all pairs.

    Args:
        candidates: Pairs to choose from.
        similarity: (B, B); low ones are hard for positives, high ones for negatives.
        share: Share of all pairs of a sign.
        everything: All pairs.

    Examples:
        >>> relation = Relation.from_labels(torch.tensor([0, 0, 1, 1]))
        >>> int(keep_hardest(relation, torch.eye(4), 0.5, relation).positives.sum())
        2
    """
    if share == 1.0:
        return candidates
    masks = []
    for mask, whole, hardness in (
        (candidates.positives, everything.positives, -similarity),
        (candidates.negatives, everything.negatives, similarity),
    ):
        count = min(int(mask.sum()), max(1, round(share * int(whole.sum()))))
        scores = hardness.masked_fill(~mask, -torch.inf).flatten()
        kept = torch.zeros_like(scores, dtype=torch.bool)
        kept[scores.topk(count).indices if int(mask.sum()) else []] = True
        masks.append(kept.reshape(mask.shape))
    return Relation(masks[0], masks[1])
