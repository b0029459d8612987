"""Smooth-AP: average precision with sigmoids in place of comparisons (Brown et al., ECCV 2020)."""

import torch
from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import columns, number


def smooth_ap(similarity: Tensor, positives: Tensor, negatives: Tensor, *, temperature: float = 0.01) -> Tensor:
    """Loss of every anchor, (B,); time and memory O(B P R) for P positives per anchor.

    1 - mean_p rank of p among the positives / rank of p among all
    rank = 1 + sum over the others of sigmoid((s_j - s_p) / temperature)

    >>> kin = torch.tensor([[True, False]])
    >>> smooth_ap(torch.tensor([[0.9, 0.1]]), kin, ~kin), smooth_ap(torch.tensor([[0.1, 0.9]]), kin, ~kin)
    (tensor([0.]), tensor([0.5000]))
    """
    index, exists = columns(positives)
    own = similarity.gather(1, index)  # (B, W)
    kin_rank = torch.sigmoid((own[:, None, :] - own[:, :, None]) / temperature)  # (B, W, W): who precedes whom
    kin_rank = torch.where(exists[:, None, :], kin_rank, 0.0).sum(dim=2) + 0.5  # itself counts half so far
    above = torch.sigmoid((similarity[:, None, :] - own[:, :, None]) / temperature)  # (B, W, R)
    others = (above * number(negatives, above)[:, None, :]).sum(dim=2)
    precision = torch.where(exists, kin_rank / (kin_rank + others), 0.0)
    count = exists.sum(dim=1)
    return torch.where(count > 0, 1.0 - precision.sum(dim=1) / count.clamp(min=1), 0.0)


class SmoothAP(Loss):
    """Mean over anchors. The anchor itself is not part of its list (the authors' code ranks it too)."""

    def __init__(self, temperature: float = 0.01, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        positive(temperature=temperature)
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(smooth_ap(pairs.scores, pairs.positives, pairs.negatives, temperature=self.temperature))
