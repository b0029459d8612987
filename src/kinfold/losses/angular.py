"""Angular: the angle at the negative of each triplet, beside an n-pair term (Wang et al., ICCV 2017)."""

import math
from typing import Literal

import torch
from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.n_pair import n_pair, norm_penalty
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.miners.one_positive import OnePositive
from kinfold.pairs import dot, normalize
from kinfold.pairs.masks import columns


def angular(
    similarity: Tensor, of_positives: Tensor, exists: Tensor, index: Tensor, negatives: Tensor, *, tan2: float = 1.0
) -> Tensor:
    """Loss of every anchor, (B,), averaged over its positives.

    mean_p log(1 + sum_n exp f(a, p, n)),   f = 4 tan^2 (a + p).n - 2 (1 + tan^2) a.p

    `similarity` (B, R) holds the cosines of anchors and references; `index` (B, W) the columns of the positives, of
    which those that `exists` are real; `of_positives` (B, W, R) the cosines of each positive with all references.

    >>> s, kin = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]])
    >>> angular(s, torch.eye(2)[None, :1], kin[:, :1], torch.tensor([[0]]), ~kin).round(decimals=4)
    tensor([0.0181])
    """
    sums = masked_logsumexp(
        (similarity[:, None, :] + of_positives).flatten(0, 1), negatives.repeat_interleave(index.shape[1], 0), 4 * tan2
    )
    offset = 2 * (1 + tan2) * similarity.gather(1, index)
    values = torch.where(exists, softplus(sums.view_as(offset) - offset), 0.0)
    return values.sum(dim=1) / exists.sum(dim=1).clamp(min=1)


class Angular(Loss):
    """N-pair on raw embeddings + `weight` times the angular term on unit vectors + a penalty on lengths.

    `angle` in degrees; `positives="one"` draws one positive per anchor, as in the study of Roth et al. (ICML 2020),
    whose printed equation is not this one. Evaluate with Euclidean distances of raw embeddings.
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
        self.chooser = OnePositive.option(positives, generator)
        self.by_rows = self.chooser is None  # one draw for the whole batch

    def terms(self, pairs: ScoredPairs) -> Terms:
        assert pairs.anchors is not None
        assert pairs.references is not None
        positives = pairs.positives if self.chooser is None else self.chooser.narrow(pairs.positives)
        whole = pairs.symmetric and len(pairs.anchors) == len(pairs.references)
        y = normalize(pairs.references)
        similarity = dot(y if whole else normalize(pairs.anchors), y)
        index, exists = columns(positives)
        # rows that are there already, or products for the positives of these anchors alone
        rows = similarity.index_select(0, index.flatten()) if whole else dot(y.index_select(0, index.flatten()), y)
        tan2 = math.tan(math.radians(self.angle)) ** 2
        of_positives = rows.view(*index.shape, -1)
        angles = angular(similarity, of_positives, exists, index, pairs.negatives, tan2=tan2)
        found = pairs.per_anchor(n_pair(pairs.scores, positives, pairs.negatives) + self.weight * angles)
        return found._replace(values=found.mean())

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        return norm_penalty(embeddings, self.regularization, self.norm_power)

    @property
    def has_pair_weights(self) -> bool:
        return False  # raw dot products and cosines both enter
