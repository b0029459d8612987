"""Margin: kin nearer and others farther than a learned boundary, each by a margin (Wu et al., ICCV 2017)."""

from typing import Literal

import torch
from torch import Tensor, nn, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.proxies import check_class_range
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import number


def margin(
    squared_distance: Tensor, positives: Tensor, negatives: Tensor, beta: Tensor, *, margin: float = 0.2
) -> Tensor:
    """Loss of every pair, (B, R); zero where a pair is in neither mask. `beta` broadcasts to it.

    d = sqrt(|x - y|^2 + 1e-8);   positive: [d - beta + margin]+        negative: [beta - d + margin]+

    >>> kin = torch.tensor([[True, False]])
    >>> margin(torch.tensor([[1.0, 1.0]]), kin, ~kin, torch.tensor(0.9)).round(decimals=4)
    tensor([[0.3000, 0.1000]])
    """
    distance = (squared_distance + 1e-8).clamp(min=1e-8).sqrt()
    kin, other = number(positives, distance), number(negatives, distance)
    return relu((distance - beta) * (kin - other) + margin) * (kin + other)


class Margin(Loss):
    """Sum over pairs divided by the number of violated ones, on Euclidean distances of unit vectors.

    `beta` is the boundary: one learned number, or one per class of the anchor with `num_classes`. Give it its own
    learning rate and no weight decay (`parameter_groups`). Usually used with distance-weighted mining. Without tuples
    every (anchor, reference) pair counts once.

    `variant="as-coded"` divides by the number of triplets with a violated side, as the code of the study by Roth et al.
    (ICML 2020) does; it needs mined triplets.
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
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if variant not in ("standard", "as-coded"):
            raise ValueError(f"variant must be 'standard' or 'as-coded', got {variant!r}")
        if num_classes is not None and num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        if beta_regularization and not learn_beta:
            raise ValueError("beta_regularization moves a boundary that learns: leave out it, or learn_beta=False")
        self.margin = margin
        self.num_classes = num_classes
        self.uses_labels = num_classes is not None
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
                raise ValueError("margin with num_classes has one beta per class: give labels, also beside relation=")
            check_class_range(pairs.labels, self.num_classes)
            beta = beta[pairs.labels]
        values = margin(pairs.scores, pairs.positives, pairs.negatives, beta, margin=self.margin)
        active = values.detach().sign()
        if self.variant == "as-coded":
            if not pairs.from_triplets:
                raise ValueError("variant='as-coded' counts triplets: give tuples= of a triplet miner")
            return Terms.over(values, active.amax(dim=0).sum())
        return pairs.per_pair(values, active)

    def regularizer(self) -> Tensor | None:
        return self.beta.sum() * self.beta_regularization if self.beta_regularization else None
