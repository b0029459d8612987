"""Boosted embeddings: each learner gets the pairs that those before it do not separate yet (BIER and A-BIER).

Opitz et al., "Deep Metric Learning with BIER: Boosting Independent Embeddings Robustly", TPAMI 2018. With features y
and learners v_k = normalize(W_k y + b_k), s_k(i, j) = v_ik . v_jk and y_ij = 1 for positives, -1 for negatives:

    l(s, y)  = log(1 + exp(-scale (s - threshold) y c_y)),   c_1 = 1, c_-1 = negative_cost
    S_0 = 0, S_k = (1 - eta_k) S_(k-1) + eta_k s_k,  eta_k = 2 / (k + 1)          scores of the first k learners
    w_1 = 1, w_k(i, j) = -dl/ds at S_(k-1), divided by its largest value           no gradient
    J = sum_k (mean over positives + mean over negatives of w_k l(s_k)) / 2
        + diversity_weight * sum over k < l of -mean_i (v_ik . R_kl(v_il))^2,  with the gradient of v reversed

The regressors R_kl try to predict one learner from another, and the learners learn to be unpredictable.

Scale, threshold, cost and eta_k are those of the authors' released code (github.com/mop/bier). Not as there: learners
have equal dimensions (96, 160 and 256 of 512 there). Regressors have 64 hidden units (512 there), their output has
unit length (there weights of regressors and learners are penalized until their rows have, with the factor 1e5), and
the square is that of the scalar product (there of each product of two entries, weight 5e-5). Weights of pairs are
divided by their largest value. Their scripts start from another form of boosting, with a constant shrinkage of 0.06
instead of eta_k. The loss of the recipe is not used unless `representation_weight` is set.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from kinfold.models.ensemble import (
    Ensemble,
    ObjectiveTerm,
    ParallelLinear,
    PartsOutput,
    check_not_negative,
    divide_evenly,
    normalize_parts,
)
from kinfold.models.gradient_reversal import reverse_gradient
from kinfold.pairs import Relation


class BoostedHeads(Ensemble):
    """Learners that are trained one after the other within a step. Formulas: see the module.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings, a multiple of `branches`.
        branches: K, the number of learners.
        scale, threshold, negative_cost: Of the binomial deviance; 2, 0.5 and 25 in the paper.
        diversity_weight: Weight of the adversarial regressors; 0 is BIER without them.
        hidden: Hidden units of a regressor.
        representation_weight: Weight of the recipe's loss of the complete embedding.

    Raises:
        ValueError: `branches` does not divide `dim`, or a weight is negative.

    Examples:
        >>> head = BoostedHeads(width=8, dim=6, branches=3)
        >>> head(torch.ones(2, 8)).parts.shape, head.eval()(torch.ones(2, 8)).shape
        (torch.Size([2, 3, 2]), torch.Size([2, 6]))
    """

    part_weight = 0.0

    def __init__(
        self,
        width: int,
        dim: int,
        branches: int = 3,
        scale: float = 2.0,
        threshold: float = 0.5,
        negative_cost: float = 25.0,
        diversity_weight: float = 0.001,
        hidden: int = 64,
        representation_weight: float = 0.0,
    ) -> None:
        check_not_negative(diversity_weight=diversity_weight, scale=scale, negative_cost=negative_cost)
        super().__init__(branches, divide_evenly(dim, branches, "dim"), representation_weight)
        self.scale, self.threshold, self.negative_cost = scale, threshold, negative_cost
        self.diversity_weight = diversity_weight
        self.nodes = ParallelLinear(branches, width, self.part_dim)
        self.pairs = [(k, m) for k in range(branches) for m in range(k + 1, branches)]
        self.regressors = nn.ModuleList(
            nn.Sequential(nn.Linear(self.part_dim, hidden), nn.ReLU(), nn.Linear(hidden, self.part_dim))
            for _ in self.pairs
        )
        self.register_buffer("shares", compute_shares(branches), persistent=False)
        self.shares: Tensor

    def output(self, features: Tensor) -> PartsOutput:
        parts = normalize_parts(self.nodes(features[:, None]))
        # with these lengths the product of two embeddings is S_K
        return PartsOutput((parts * self.shares.to(parts).sqrt()[:, None]).flatten(1), parts)

    def labeled_terms(self, output: PartsOutput, relation: Relation) -> dict[str, ObjectiveTerm]:
        terms = {}
        signs = relation.positives.to(output.parts.dtype) * (1 + self.negative_cost) - self.negative_cost
        score = torch.zeros_like(signs)
        for number, rows in enumerate(output.parts.unbind(dim=1)):
            similarity = rows @ rows.T
            margin = self.scale * signs  # scale c_y y
            weights = torch.ones_like(score)
            if number:
                slope = margin.abs() * torch.sigmoid(-margin * (score - self.threshold))
                weights = slope / slope.masked_fill(~(relation.positives | relation.negatives), 0.0).amax().clamp(1e-12)
            losses = weights * softplus(-margin * (similarity - self.threshold))
            value = sum(
                (losses * mask).sum() / mask.sum().clamp(min=1) for mask in (relation.positives, relation.negatives)
            )
            terms[f"boosted-{number + 1}"] = ObjectiveTerm(0.5, torch.as_tensor(value))
            share = 2.0 / (number + 2)
            score = (1 - share) * score + share * similarity.detach()
        if self.pairs and self.diversity_weight:
            terms["diversity"] = ObjectiveTerm(self.diversity_weight, self.compute_diversity(output.parts))
        return terms

    def compute_diversity(self, parts: Tensor) -> Tensor:
        """Return minus the sum over pairs of learners of the mean squared product with the regression, a scalar."""
        reversed_parts = reverse_gradient(parts)
        total = parts[:0].sum()
        for (k, m), regressor in zip(self.pairs, self.regressors, strict=True):
            predicted = normalize_parts(regressor(reversed_parts[:, m]))
            total = total - (reversed_parts[:, k] * predicted).sum(dim=1).square().mean()
        return total


def compute_shares(count: int) -> Tensor:
    """Return the share of each learner in S_K, (K,); they sum to one.

    Examples:
        >>> compute_shares(3)
        tensor([0.1667, 0.3333, 0.5000])
    """
    shares = torch.zeros(count)
    for number in range(count):
        share = 2.0 / (number + 2)
        shares *= 1 - share
        shares[number] = share
    return shares
