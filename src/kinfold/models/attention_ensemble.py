"""Attention-based ensemble: learners that look at different parts of the features (ABE).

Kim et al., "Attention-based Ensemble for Deep Metric Learning", ECCV 2018. With features y (B, width) and K learners:

    a_k  = sigmoid(U_k relu(W_k y))                       attention of learner k
    v_k  = normalize(G (a_k * y) + b)                     one embedding function G for all learners
    z    = v_1 .. v_K                                     the embedding

    J = sum_k L_k(v_k) + divergence_weight mean over items and pairs k < l of [divergence_margin - |v_k - v_l|^2]+

Not as published: the paper attends to positions and channels of feature maps within the network, and the layers
behind are shared; a head sees pooled features, so that this one attends to channels only. Weight and margin of the
divergence are ours: the authors' code was not to be found, and public implementations by others disagree (weight 0.05
and margin 0.2, or 0.5 and 0.5, both on cosines).
"""

import torch
from torch import Tensor, nn, relu

from kinfold.models.ensemble import (
    Ensemble,
    ObjectiveTerm,
    ParallelLinear,
    PartsOutput,
    check_not_negative,
    divide_evenly,
    normalize_parts,
)


class AttentionEnsemble(Ensemble):
    """Learners with one embedding function and an attention mask each. Formulas: see the module.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings, a multiple of `branches`.
        branches: K, the number of learners; 8 in the paper.
        hidden: Hidden units of each attention mask.
        divergence_weight: Weight of the divergence of the learners.
        divergence_margin: Squared distance that two embeddings of an item should have.
        representation_weight: Weight of the loss of the complete embedding.

    Raises:
        ValueError: `branches` does not divide `dim`, or a weight is negative.

    Examples:
        >>> head = AttentionEnsemble(width=8, dim=6, branches=3)
        >>> head(torch.ones(2, 8)).parts.shape, head.eval()(torch.ones(2, 8)).shape
        (torch.Size([2, 3, 2]), torch.Size([2, 6]))
    """

    def __init__(
        self,
        width: int,
        dim: int,
        branches: int = 8,
        hidden: int = 32,
        divergence_weight: float = 1.0,
        divergence_margin: float = 1.0,
        representation_weight: float = 0.0,
    ) -> None:
        check_not_negative(divergence_weight=divergence_weight, divergence_margin=divergence_margin)
        super().__init__(branches, divide_evenly(dim, branches, "dim"), representation_weight)
        self.divergence_weight = divergence_weight
        self.divergence_margin = divergence_margin
        self.squeeze = ParallelLinear(branches, width, hidden)
        self.expand = ParallelLinear(branches, hidden, width)
        self.embed = nn.Linear(width, self.part_dim)

    def output(self, features: Tensor) -> PartsOutput:
        attention = torch.sigmoid(self.expand(relu(self.squeeze(features[:, None]))))  # (B, K, width)
        parts = normalize_parts(self.embed(attention * features[:, None]))
        return PartsOutput(parts.flatten(1), parts)

    def terms(self, output: PartsOutput) -> dict[str, ObjectiveTerm]:
        value = compute_divergence(output.parts, self.divergence_margin)
        return {"divergence": ObjectiveTerm(self.divergence_weight, value)}


def compute_divergence(parts: Tensor, margin: float) -> Tensor:
    """Return the mean over items and pairs k < l of [margin - |v_k - v_l|^2]+, a scalar.

    Args:
        parts: Unit vectors, (B, K, d).
        margin: Squared distance from which a pair of parts costs nothing.

    Examples:
        >>> compute_divergence(torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]), 1.0).round(decimals=4)
        tensor(0.3333)
    """
    count, number, _ = parts.shape
    if count == 0 or number < 2:
        return parts[:0].sum()
    first, second = torch.triu_indices(number, number, 1, device=parts.device)
    squared = (parts[:, first] - parts[:, second]).square().sum(dim=2)  # (B, pairs)
    return relu(margin - squared).mean()
