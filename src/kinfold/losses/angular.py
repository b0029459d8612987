"""Angular loss: the angle at the negative of each triplet, plus an n-pair term (Wang et al., ICCV 2017)."""

import math
from typing import Literal

import torch
from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.n_pair import n_pair, norm_penalty
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.miners.one_positive import OnePositiveMiner
from kinfold.pairs import dot, normalize
from kinfold.pairs.masks import list_columns
from kinfold.pairs.transforms import is_transformed


def angular(
    similarity: Tensor,
    positive_row_similarity: Tensor,
    positive_similarity: Tensor,
    negatives: Tensor,
    *,
    tan2: float = 1.0,
) -> Tensor:
    """Loss of every anchor a with one positive p.

    log(1 + sum_n exp f(a, p, n)),   f = 4 tan^2 (a + p).n - 2 (1 + tan^2) a.p

    Args:
        similarity: Cosines of the anchors and the references, (B, R).
        positive_row_similarity: Cosines of the anchors' positives and the references, (B, R).
        positive_similarity: Cosines of the anchors and their positives, (B,).
        negatives: Boolean mask, (B, R).
        tan2: Squared tangent of the angle.

    Returns:
        (B,).

    Examples:
        >>> similarity = torch.tensor([[1.0, 0.0]])
        >>> angular(similarity, similarity, similarity[:, 0], torch.tensor([[False, True]])).round(decimals=4)
        tensor([0.0181])
    """
    negative_logits = masked_logsumexp(similarity + positive_row_similarity, negatives, 4 * tan2)
    return softplus(negative_logits - 2 * (1 + tan2) * positive_similarity)


class Angular(Loss):
    """N-pair loss on raw embeddings + `weight` times the angular loss on unit vectors + a penalty on lengths.

    L = mean over anchors (n-pair + weight * angular) + regularization * mean |x|^norm_power

    Evaluate with Euclidean distances of raw embeddings. The equation printed by Roth et al. (ICML 2020) is another one.

    Args:
        angle: Upper bound of the angle at the negative, in degrees, between 0 and 90.
        weight: Weight of the angular term.
        regularization: Weight of the penalty on the lengths of embeddings.
        norm_power: Power of the length in the penalty.
        positives: "all" averages over the positives of an anchor, "one" draws one of them, as in Roth et al. (2020).
        generator: Source of random numbers for positives="one"; by default a new one with seed 0.
        reduction: "mean" or "sum".
    """

    kind = "batch"
    measure = "dot"
    normalize = False

    def __init__(
        self,
        angle: float = 45.0,
        weight: float = 2.0,
        regularization: float = 0.005,
        norm_power: float = 2.0,
        positives: Literal["all", "one"] = "all",
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if not 0 < angle < 90:
            raise ValueError(f"angle must be in (0, 90) degrees, got {angle}")
        self.angle = angle
        self.weight = weight
        self.regularization = regularization
        self.norm_power = norm_power
        self.chooser = OnePositiveMiner.from_option(positives, generator)
        self.supports_chunks = self.chooser is None  # one draw for the whole batch

    def terms(self, pairs: ScoredPairs) -> Terms:
        positives = pairs.positives if self.chooser is None else self.chooser.narrow(pairs.positives)
        angular_values = self._mean_angular(pairs, *list_columns(positives))
        terms = pairs.per_anchor(n_pair(pairs.scores, positives, pairs.negatives) + self.weight * angular_values)
        return terms._replace(values=terms.mean())

    def _mean_angular(self, pairs: ScoredPairs, index: Tensor, exists: Tensor) -> Tensor:
        """Mean angular loss over the positives of each anchor, (B,), whose columns are `index` (B, W)."""
        assert pairs.anchors is not None
        assert pairs.references is not None
        is_whole = pairs.symmetric and len(pairs.anchors) == len(pairs.references)
        y = normalize(pairs.references)
        similarity = dot(y if is_whole else normalize(pairs.anchors), y)
        tan2 = math.tan(math.radians(self.angle)) ** 2

        def select(column: Tensor) -> Tensor:  # rows that are already computed, or products for these positives only
            return similarity.index_select(0, column) if is_whole else dot(y.index_select(0, column), y)

        positive, width = similarity.gather(1, index), index.shape[1]  # (B, W)
        if is_transformed():
            repeated = [t.repeat_interleave(width, dim=0) for t in (similarity, pairs.negatives)]
            values = angular(repeated[0], select(index.flatten()), positive.flatten(), repeated[1], tan2=tan2)
            values = values.view_as(positive)
        else:  # one positive per anchor at a time: no tensor of triplets
            parts = [
                angular(similarity, select(i), s, pairs.negatives, tan2=tan2)
                for i, s in zip(index.T, positive.T, strict=True)
            ]
            values = torch.stack(parts, dim=1)
        return torch.where(exists, values, 0.0).sum(dim=1) / exists.sum(dim=1).clamp(min=1)

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        return norm_penalty(embeddings, self.regularization, self.norm_power)

    @property
    def has_pair_weights(self) -> bool:
        return False  # depends on raw dot products and on cosines
