"""Circle: every similarity weighted by how far it is from where it should be (Sun et al., CVPR 2020)."""

from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.terms import ScoredPairs, Terms


def circle(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.4, scale: float = 80.0
) -> Tensor:
    """Loss of every anchor, (B,).

    log(1 + sum_n exp(scale a_n (s_n - margin)) sum_p exp(-scale a_p (s_p - 1 + margin)))
    a_p = [1 + margin - s_p]+,  a_n = [s_n + margin]+

    The weights a_p and a_n set the pace of each pair and carry no gradient, as in the authors' definition of them.

    >>> import torch
    >>> kin = torch.tensor([[True, False]])
    >>> circle(torch.tensor([[0.6, 0.4]]), kin, ~kin).round(decimals=4)
    tensor([0.6931])
    """
    fixed = similarity.detach()
    pull = -scale * (1.0 + margin - fixed).clamp(min=0.0) * (similarity - (1.0 - margin))
    push = scale * (fixed + margin).clamp(min=0.0) * (similarity - margin)
    return softplus(masked_logsumexp(pull, positives) + masked_logsumexp(push, negatives))


class Circle(Loss):
    """Mean over anchors. margin 0.4 and scale 80 are the paper's for fine-grained retrieval; 0.25 and 256 for faces."""

    def __init__(self, margin: float = 0.4, scale: float = 80.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        positive(scale=scale)
        self.margin = margin
        self.scale = scale

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(
            circle(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin, scale=self.scale)
        )
