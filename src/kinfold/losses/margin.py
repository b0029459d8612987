"""Margin loss: positives nearer and negatives farther than a learned boundary (Wu et al., ICCV 2017)."""

from typing import Literal

import torch
from torch import Tensor, nn, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.proxies import check_class_range
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import mask_to_float
from kinfold.registry import check_choice


def margin(
    squared_distance: Tensor, positives: Tensor, negatives: Tensor, beta: Tensor, *, margin: float = 0.2
) -> Tensor:
    """Loss of every pair, zero where a pair is neither positive nor negative.

    d = sqrt(|x - y|^2 + 1e-8);   positive: [d - beta + margin]+        negative: [beta - d + margin]+

    Args:
        squared_distance: (B, R).
        positives, negatives: Boolean masks, (B, R).
        beta: Boundary, in a shape that broadcasts to (B, R).
        margin: Required distance from the boundary.

    Returns:
        (B, R).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> margin(torch.tensor([[1.0, 1.0]]), positives, ~positives, torch.tensor(0.9)).round(decimals=4)
        tensor([[0.3000, 0.1000]])
    """
    distance = (squared_distance + 1e-8).clamp(min=1e-8).sqrt()
    positive, negative = mask_to_float(positives, distance), mask_to_float(negatives, distance)
    return relu((distance - beta) * (positive - negative) + margin) * (positive + negative)


class Margin(Loss):
    """Sum over pairs divided by the number of violated pairs, on Euclidean distances of unit vectors.

    Usually combined with the `distance-weighted` miner. Without tuples every (anchor, reference) pair counts once. The
    boundary beta should have its own learning rate and no weight decay, see `parameter_groups`.

    Args:
        margin: Required distance from the boundary.
        beta: Initial boundary, a distance.
        num_classes: If set, there is one boundary per class of the anchor; otherwise one for all.
        learn_beta: Whether the boundary is a parameter; otherwise it is constant.
        beta_regularization: Weight of the sum of the boundaries, which is added to the loss; needs learn_beta.
        variant: "standard", or "as-coded": divides by the number of triplets with a violated pair, as the code of Roth
            et al. (ICML 2020) does; needs mined triplets.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    kind = "pair"
    measure = "squared-euclidean"

    def __init__(
        self,
        margin: float = 0.2,
        beta: float = 1.2,
        num_classes: int | None = None,
        learn_beta: bool = True,
        beta_regularization: float = 0.0,
        variant: Literal["standard", "as-coded"] = "standard",
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_choice("variant", variant, ("standard", "as-coded"))
        if num_classes is not None and num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        if beta_regularization and not learn_beta:
            raise ValueError(
                "beta_regularization has no effect on a constant boundary: leave it out, or leave out learn_beta=False"
            )
        self.margin = margin
        self.num_classes = num_classes
        self.uses_labels = num_classes is not None
        self.elementwise = num_classes is None
        self.beta_regularization = beta_regularization
        self.variant = variant
        start = torch.tensor(beta) if num_classes is None else torch.full((num_classes,), beta)
        if learn_beta:
            self.beta = nn.Parameter(start)
        else:
            self.register_buffer("beta", start)

    def terms(self, pairs: ScoredPairs) -> Terms:
        beta = self.beta.to(pairs.scores)
        if self.num_classes is not None:
            if pairs.labels is None:
                raise ValueError("margin with num_classes has one beta per class: pass labels, also beside relation=")
            check_class_range(pairs.labels, self.num_classes)
            beta = beta[pairs.labels]
        values = margin(pairs.scores, pairs.positives, pairs.negatives, beta, margin=self.margin)
        active = values.detach().sign()
        if self.variant == "as-coded":
            if not pairs.from_triplets:
                raise ValueError("variant='as-coded' counts triplets: pass tuples= of a triplet miner")
            active = active.amax(dim=0).expand_as(values) / 2  # a triplet counts half at each of its pairs
        return pairs.per_pair(values, active)

    def regularizer(self) -> Tensor | None:
        return self.beta.sum() * self.beta_regularization if self.beta_regularization else None
