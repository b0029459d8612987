"""Angular: the angle at the negative of each triplet, beside an n-pair term (Wang et al., ICCV 2017)."""

import math
from typing import Literal

import torch
from torch import Tensor

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.n_pair import n_pair, norm_penalty
from kinfold.losses.terms import ScoredPairs, Terms, softplus
from kinfold.miners.one_positive import OnePositive
from kinfold.pairs import dot, normalize


def angular(similarity: Tensor, among: Tensor, positives: Tensor, negatives: Tensor, *, tan2: float = 1.0) -> Tensor:
    """Loss of every anchor, (B,), averaged over its positives.

    mean_p log(1 + sum_n exp f(a, p, n)),   f = 4 tan^2 (a + p).n - 2 (1 + tan^2) a.p

    `similarity` (B, R) holds the cosines of anchors and references, `among` (R, R) those of the references. The sum
    over n splits into a product of exponentials, so that it needs no tensor of triplets: one column of positives after
    the other, or one matrix product where there are many.

    >>> s, kin = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]])
    >>> angular(s, torch.eye(2), kin, ~kin).round(decimals=4)
    tensor([0.0181])
    """
    # both factors lie in (0, 1]: the largest exponent, 4 tan^2, is taken out and put back with the logarithm
    near = torch.where(negatives, (4 * tan2 * (similarity - 1.0)).exp(), 0.0)
    far = (4 * tan2 * (among - 1.0)).exp()
    count = positives.sum(dim=1)
    columns = similarity.shape[1]
    width = columns if torch.compiler.is_compiling() else int(count.max())
    if 16 * width >= columns:
        sums = near @ far.T  # (B, R): sum over n for every (a, p)
        offset = 8 * tan2 - 2 * (1 + tan2) * similarity
        values = torch.where(positives, _log1p_product(sums, offset, positives), 0.0)
        return values.sum(dim=1) / count.clamp(min=1)
    _, order = positives.to(torch.uint8).topk(width, dim=1)  # the positives of each anchor first
    total = similarity.new_zeros(similarity.shape[0])
    for place in range(width):
        column = order[:, place]
        sums = (near * far[column]).sum(dim=1)
        offset = 8 * tan2 - 2 * (1 + tan2) * similarity.gather(1, column[:, None]).squeeze(1)
        exists = count > place
        total = total + torch.where(exists, _log1p_product(sums, offset, exists), 0.0)
    return total / count.clamp(min=1)


def _log1p_product(sums: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
    """log(1 + sums exp(offset)), with a finite gradient where nothing was summed."""
    some = mask & (sums > 0)
    return torch.where(some, softplus(sums.masked_fill(~some, 1.0).log() + offset), 0.0)


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
        if not 0 < angle <= 60:
            raise ValueError(f"angle must be in (0, 60] degrees, got {angle}")
        self.angle = angle
        self.weight = weight
        self.regularization = regularization
        self.norm_power = norm_power
        self.chooser = OnePositive.option(positives, generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        assert pairs.anchors is not None
        assert pairs.references is not None
        positives = pairs.positives if self.chooser is None else self.chooser.narrow(pairs.positives)
        x = normalize(pairs.anchors)
        y = x if pairs.symmetric else normalize(pairs.references)
        similarity = dot(x, y)
        among = similarity if pairs.symmetric else dot(y, y)
        tan2 = math.tan(math.radians(self.angle)) ** 2
        angles = angular(similarity, among, positives, pairs.negatives, tan2=tan2)
        found = pairs.per_anchor(n_pair(pairs.scores, positives, pairs.negatives) + self.weight * angles)
        return Terms(found.sums.sum() / found.counts.clamp(min=1).sum(), found.sums, found.counts)

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        return norm_penalty(embeddings, self.regularization, self.norm_power)

    @property
    def has_pair_weights(self) -> bool:
        return False  # raw dot products and cosines both enter
