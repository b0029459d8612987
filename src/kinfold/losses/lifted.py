"""Lifted structure: all kin and all others of an anchor at once, smoothly (Oh Song et al., CVPR 2016)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.masks import columns, count


def lifted(similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Loss of every anchor, (B,).

    [log sum_p exp(-s_ap) + log sum_n exp(s_an)]+

    A threshold on both sides would cancel, so there is none.

    >>> kin = torch.tensor([[True, False]])
    >>> lifted(torch.tensor([[0.2, 0.9]]), kin, ~kin).round(decimals=4)
    tensor([0.7000])
    """
    return relu(masked_logsumexp(similarity, positives, -1.0) + masked_logsumexp(similarity, negatives))


def lifted_oh_song(distance: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 1.0) -> Tensor:
    """One number for a batch compared with itself; positives and negatives are symmetric.

    1 / (2 |P|) sum over positive pairs (i, j) of [J_ij]+^2
    J_ij = log(sum_{k in N_i} exp(margin - d_ik) + sum_{l in N_j} exp(margin - d_jl)) + d_ij
    """
    reach = masked_logsumexp(distance, negatives, -1.0) + margin  # (B,)
    index, exists = columns(positives)  # (B, W)
    joint = torch.logaddexp(reach[:, None], reach[index]) + distance.gather(1, index)
    # both ends without negatives: no constraint, and no part in the count
    counted = exists & ((count(negatives) > 0)[:, None] | (count(negatives) > 0)[index])
    hinges = torch.where(counted, relu(joint), 0.0).square()
    return hinges.sum() / (2 * counted.sum().clamp(min=1))


class Lifted(Loss):
    """Mean over anchors, on cosines: the form that the grouped KL of the DRO framework recovers at gamma = 1 (Qi et
    al., 2020).

    `variant="oh-song"` is the original: squared hinges over positive pairs, each against the negatives of both its
    ends, on Euclidean distances of unit vectors with `margin` (1 where not given). It is one number for a batch and
    takes no reference set.
    """

    def __init__(
        self,
        variant: Literal["standard", "oh-song"] = "standard",
        margin: float | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        if variant not in ("standard", "oh-song"):
            raise ValueError(f"variant must be 'standard' or 'oh-song', got {variant!r}")
        if variant == "standard" and margin is not None:
            raise ValueError(
                f"margin={margin:g} belongs to variant='oh-song': in the standard form it would cancel; leave it out"
            )
        if variant == "oh-song":
            self.kind = "batch"
            self.measure = "euclidean"
            self.by_rows = False
        super().__init__(reduction)
        self.variant = variant
        self.margin = 1.0 if margin is None else margin

    def terms(self, pairs: ScoredPairs) -> Terms:
        if self.variant == "standard":
            return pairs.per_anchor(lifted(pairs.scores, pairs.positives, pairs.negatives))
        if not pairs.symmetric:
            raise ValueError("variant='oh-song' needs the negatives of both ends of a pair: it takes no reference set")
        return Terms.over(lifted_oh_song(pairs.scores, pairs.positives, pairs.negatives, margin=self.margin), 1)
