"""Sigmoid loss: every pair is a binary decision, with a learned scale and bias (SigLIP, Zhai et al., ICCV 2023)."""

import math

import torch
from torch import Tensor, nn

from kinfold.losses.checks import check_positive
from kinfold.losses.logsumexp import softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_to_float
from kinfold.pairs.relation_source import RelationSource


def sigmoid(similarity: Tensor, positives: Tensor, negatives: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Loss of every pair, zero where a pair is neither positive nor negative.

    positive: log(1 + exp(-(scale s + bias)))        negative: log(1 + exp(scale s + bias))

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        scale, bias: Scalars.

    Returns:
        (B, R).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> sigmoid(torch.ones(1, 2), positives, ~positives, torch.tensor(2.0), torch.tensor(-2.0)).round(decimals=4)
        tensor([[0.6931, 0.6931]])
    """
    positive, negative = mask_to_float(positives, similarity), mask_to_float(negatives, similarity)
    return softplus((scale * similarity + bias) * (negative - positive)) * (positive + negative)


class Sigmoid(Loss):
    """Sum over pairs divided by the number of anchors.

    Scale and bias are parameters of the loss; the scale is learned as its logarithm, `log_scale`. They need no larger
    learning rate than the network.

    Args:
        scale: Initial factor of the cosines; 10 as in the paper.
        bias: Initial bias; -10 as in the paper: at the start nearly all pairs are negative.
        learn: Whether scale and bias are trained; otherwise they are constant.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    kind = "pair"
    elementwise = True
    log_scale: Tensor
    bias: Tensor

    def __init__(
        self,
        scale: float = 10.0,
        bias: float = -10.0,
        learn: bool = True,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(scale=scale)
        self.learn = learn
        for name, value in (("log_scale", math.log(scale)), ("bias", bias)):
            if learn:
                self.register_parameter(name, nn.Parameter(torch.tensor(value)))
            else:
                self.register_buffer(name, torch.tensor(value))

    def terms(self, pairs: ScoredPairs) -> Terms:
        scale, bias = self.log_scale.to(pairs.scores).exp(), self.bias.to(pairs.scores)
        values = sigmoid(pairs.scores, pairs.positives, pairs.negatives, scale, bias)
        terms = pairs.per_pair(values)
        is_used = pairs.positives | pairs.negatives
        if pairs.scores.dim() == 3 or pairs.from_triplets:  # both signs of a pair, or of a triplet, are one anchor's
            is_used = is_used.any(dim=0)
        anchors = (is_used if pairs.from_triplets else is_used.any(dim=-1)).to(values.dtype)
        number = anchors.sum() if pairs.anchor_weights is None else (anchors * pairs.anchor_weights).sum()
        return terms._replace(counts=number.reshape(1))

    def counts(self, relation: RelationSource) -> Tensor:
        return (relation.count_positives() + relation.count_negatives() > 0).sum().reshape(1)
