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
from kinfold.pairs.class_rows import ClassRows
from kinfold.pairs.masks import list_columns, mask_out
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
    fixed_measure = "its angles are those of triangles of embeddings"

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
        self.supports_chunks = self.whole_classes = self.chooser is None  # one draw for the whole batch

    def terms(self, pairs: ScoredPairs) -> Terms:
        positives = pairs.positives if self.chooser is None else self.chooser.narrow(pairs.positives)
        tan2 = math.tan(math.radians(self.angle)) ** 2
        # exp(4 tan^2 (s - max s)) must not underflow, also not the product of two of them
        can_factor = 16.0 * tan2 < (60.0 if pairs.scores.dtype == torch.float32 else 600.0)
        if pairs.classes is not None and can_factor:
            angular_values = _mean_angular_of_classes(pairs, pairs.classes, tan2)
        else:
            angular_values = _mean_angular(pairs, *list_columns(positives), tan2)
        terms = pairs.per_anchor(n_pair(pairs.scores, positives, pairs.negatives) + self.weight * angular_values)
        return terms._replace(values=terms.mean())

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        return norm_penalty(embeddings, self.regularization, self.norm_power)

    @property
    def takes_sample_weight(self) -> bool:
        return True  # the mean over anchors of two terms

    @property
    def has_pair_weights(self) -> bool:
        return False  # depends on raw dot products and on cosines


def _mean_angular(pairs: ScoredPairs, index: Tensor, exists: Tensor, tan2: float) -> Tensor:
    """Mean angular loss over the positives of each anchor, (B,), whose columns are `index` (B, W)."""
    assert pairs.anchors is not None
    assert pairs.references is not None
    is_whole = pairs.symmetric and len(pairs.anchors) == len(pairs.references)
    y = normalize(pairs.references)
    similarity = dot(y if is_whole else normalize(pairs.anchors), y)

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


def _mean_angular_of_classes(pairs: ScoredPairs, classes: ClassRows, tan2: float) -> Tensor:
    """Mean angular loss over the positives of each anchor, (B,), of rows that hold whole classes.

    An anchor and its positive have the same negatives, and exp(4 tan^2 (a + p).n) is a product of two factors. The sum
    over n is a small product of matrices for each class.
    """
    assert pairs.anchors is not None
    assert pairs.references is not None
    inverse = _inverse_length(pairs.anchors)
    scaled = pairs.scores * (4 * tan2 * inverse[:, None]) * _inverse_length(pairs.references)
    scaled = mask_out(scaled, pairs.negatives)
    highest = scaled.detach().amax(dim=1, keepdim=True)
    factors = classes.split((scaled - highest).exp())  # (C, M, R)
    shift = classes.split(highest)  # (C, M, 1)
    is_pair = classes.exists[:, :, None] & classes.exists[:, None, :]
    is_pair = is_pair & ~torch.eye(is_pair.shape[1], dtype=torch.bool, device=is_pair.device)
    # places without a row may have no common negative: the gradient of log 0 would be NaN
    products = (factors @ factors.mT).masked_fill(~is_pair, 1.0)
    negative_logits = products.log() + shift + shift.mT  # (C, M, M)
    unit = classes.split(pairs.anchors * inverse[:, None])
    values = softplus(negative_logits - 2 * (1 + tan2) * (unit @ unit.mT))
    return classes.join(torch.where(is_pair, values, 0.0).sum(dim=2) / is_pair.sum(dim=2).clamp(min=1))


def _inverse_length(x: Tensor) -> Tensor:
    """1 / |x| of each row, (B,); zero for a row that is zero, as in `normalize`."""
    length: Tensor = torch.linalg.vector_norm(x, dim=1)
    is_zero = length <= 1e-12
    return length.masked_fill(is_zero, 1.0).reciprocal().masked_fill(is_zero, 0.0)
