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
from kinfold.pairs.transforms import is_transformed


def angular(similarity: Tensor, of_positive: Tensor, own: Tensor, negatives: Tensor, *, tan2: float = 1.0) -> Tensor:
    """Loss of every anchor with one positive, (B,).

    log(1 + sum_n exp f(a, p, n)),   f = 4 tan^2 (a + p).n - 2 (1 + tan^2) a.p

    `similarity` (B, R) holds the cosines of the anchors with the references, `of_positive` (B, R) those of the anchors'
    positives with them, `own` (B,) those of the anchors with their positives.

    >>> s, kin = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]])
    >>> angular(s, torch.tensor([[1.0, 0.0]]), s[:, 0], ~kin).round(decimals=4)
    tensor([0.0181])
    """
    return softplus(masked_logsumexp(similarity + of_positive, negatives, 4 * tan2) - 2 * (1 + tan2) * own)


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
        positives = pairs.positives if self.chooser is None else self.chooser.narrow(pairs.positives)
        angles = self._angles(pairs, *columns(positives))
        found = pairs.per_anchor(n_pair(pairs.scores, positives, pairs.negatives) + self.weight * angles)
        return found._replace(values=found.mean())

    def _angles(self, pairs: ScoredPairs, index: Tensor, exists: Tensor) -> Tensor:
        """Mean angular loss over the positives of each anchor, (B,), whose columns are `index` (B, W)."""
        assert pairs.anchors is not None
        assert pairs.references is not None
        whole = pairs.symmetric and len(pairs.anchors) == len(pairs.references)
        y = normalize(pairs.references)
        similarity = dot(y if whole else normalize(pairs.anchors), y)
        tan2 = math.tan(math.radians(self.angle)) ** 2

        def of(column: Tensor) -> Tensor:  # rows that are there already, or products for these positives alone
            return similarity.index_select(0, column) if whole else dot(y.index_select(0, column), y)

        own, width = similarity.gather(1, index), index.shape[1]
        if is_transformed():
            spread = [t.repeat_interleave(width, dim=0) for t in (similarity, pairs.negatives)]
            values = angular(spread[0], of(index.flatten()), own.flatten(), spread[1], tan2=tan2).view_as(own)
        else:  # one positive of everyone after the other: no tensor of triplets
            parts = [
                angular(similarity, of(i), s, pairs.negatives, tan2=tan2) for i, s in zip(index.T, own.T, strict=True)
            ]
            values = torch.stack(parts, dim=1)
        return torch.where(exists, values, 0.0).sum(dim=1) / exists.sum(dim=1).clamp(min=1)

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        return norm_penalty(embeddings, self.regularization, self.norm_power)

    @property
    def has_pair_weights(self) -> bool:
        return False  # raw dot products and cosines both enter
