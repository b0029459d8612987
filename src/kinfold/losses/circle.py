"""Circle loss: every similarity is weighted by its distance from its optimum (Sun et al., CVPR 2020)."""

from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import gather_few


def circle(
    similarity: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.4, scale: float = 80.0
) -> Tensor:
    """Loss of every anchor.

    log(1 + sum_n exp(scale a_n (s_n - margin)) sum_p exp(-scale a_p (s_p - 1 + margin)))
    a_p = [1 + margin - s_p]+,  a_n = [s_n + margin]+

    The weights a_p and a_n carry no gradient, as the paper defines them.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        margin: Relaxation: positives should exceed 1 - margin, negatives stay below margin.
        scale: Factor of the weighted similarities.

    Returns:
        (B,).

    Examples:
        >>> import torch
        >>> positives = torch.tensor([[True, False]])
        >>> circle(torch.tensor([[0.6, 0.4]]), positives, ~positives).round(decimals=4)
        tensor([0.6931])
    """
    few, exists = gather_few(similarity, positives)
    pull = (few.detach() - (1.0 + margin)).clamp(max=0.0) * (few - (1.0 - margin))
    push = (similarity.detach() + margin).clamp(min=0.0) * (similarity - margin)
    return softplus(masked_logsumexp(pull, exists, scale) + masked_logsumexp(push, negatives, scale))


class Circle(Loss):
    """Mean of the circle loss over anchors.

    The defaults are the paper's for fine-grained retrieval; for faces it uses margin 0.25 and scale 256.

    Args:
        margin: Relaxation: positives should exceed 1 - margin, negatives stay below margin.
        scale: Factor of the weighted similarities.
        reduction: "mean", "sum" or "none".
    """

    fixed_measure = "its weights come from the largest and the smallest cosine, 1 and -1"

    def __init__(self, margin: float = 0.4, scale: float = 80.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        check_positive(scale=scale)
        self.margin = margin
        self.scale = scale

    def terms(self, pairs: ScoredPairs) -> Terms:
        return pairs.per_anchor(
            circle(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin, scale=self.scale)
        )
