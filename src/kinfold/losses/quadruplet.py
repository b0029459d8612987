"""Quadruplet: a triplet loss, and a second margin against a pair of two other classes (Chen et al., CVPR 2017)."""

from typing import Literal

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import Terms
from kinfold.miners.distance_weighted import DistanceWeighted
from kinfold.miners.fourth import Fourth
from kinfold.pairs import Quadruplets, Relation, Triplets, View
from kinfold.pairs.index_tuples import Tuples
from kinfold.pairs.measures import root


class Quadruplet(Loss):
    """Mean over quadruplets (a, p, n, l), where l is neither of a's class nor of n's, on distances of unit vectors.

    mean [d(a,p) - d(a,n) + margin]+ + mean [d(a,p) - d(n,l) + second_margin]+

    >>> x, y = torch.eye(6), torch.arange(6) // 2
    >>> Quadruplet()(x, y).round(decimals=4)
    tensor(1.5000)

    There is no closed form over all quadruplets: without `tuples` a triplet per anchor is drawn by distance weighting
    and a fourth item uniformly; mined triplets get a fourth item likewise. Where none exists, the second term leaves
    the tuple out.

    Margins 1 and 0.5 are the published ones; `variant="as-run"` has the 0.2 and 0.2 with which the tables of Roth et
    al. (ICML 2020) were most likely made. `squared=True` is the original's measure.
    """

    kind = "batch"
    measure = "squared-euclidean"
    uses_labels = True  # those of a reference set tell which two of its items are of different classes

    def __init__(
        self,
        margin: float | None = None,
        second_margin: float | None = None,
        squared: bool = False,
        variant: Literal["standard", "as-run"] = "standard",
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if variant not in ("standard", "as-run"):
            raise ValueError(f"variant must be 'standard' or 'as-run', got {variant!r}")
        first, second = (1.0, 0.5) if variant == "standard" else (0.2, 0.2)
        self.margin = first if margin is None else margin
        self.second_margin = second if second_margin is None else second_margin
        self.squared = squared
        self.variant = variant
        self.miner = DistanceWeighted(generator=generator)
        self.fourth = Fourth(generator=self.miner.generator)

    def choose(self, tuples: Tuples | None, seen: View) -> Tuples | None:
        if isinstance(tuples, Quadruplets) or seen.references.shape[0] == 0:
            return tuples
        if isinstance(tuples, Relation):
            raise ValueError(
                "the quadruplet loss does not work on pairs: use a miner that draws triplets, or none; or give "
                "triplets (anchor, positive, negative) or kinfold.pairs.Quadruplets"
            )
        with torch.no_grad():
            found = self.miner.look(seen) if tuples is None else tuples
            assert isinstance(found, Triplets)
            return self.fourth.extend(found, seen)

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        assert isinstance(tuples, Quadruplets)
        kin, other, beyond = scores if self.squared else root(scores)
        has_fourth = tuples.valid & tuples.has_fourth
        first = torch.where(tuples.valid, relu(kin - other + self.margin), 0.0)
        second = torch.where(has_fourth, relu(kin - beyond + self.second_margin), 0.0)
        sums = torch.stack([first.sum(), second.sum()])
        counts = torch.stack([tuples.valid.sum(), has_fourth.sum()]).to(sums.dtype)
        return Terms(first + second, sums, counts)
