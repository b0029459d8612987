"""Quadruplet loss: a triplet loss plus a second margin against a pair of two other classes (Chen et al., CVPR 2017)."""

from typing import Literal, cast

import torch
from torch import Tensor, relu

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import Terms
from kinfold.miners.distance_weighted import DistanceWeightedMiner
from kinfold.miners.fourth_item import FourthItemMiner
from kinfold.pairs import PairBatch, Quadruplets, Relation, Triplets
from kinfold.pairs.distances import Distance
from kinfold.pairs.index_tuples import Tuples
from kinfold.pairs.measures import safe_sqrt
from kinfold.registry import check_choice


class Quadruplet(Loss):
    """Mean over quadruplets (a, p, n, l), where l is neither of the class of a nor of n, on distances of unit vectors.

    mean [d(a,p) - d(a,n) + margin]+ + mean [d(a,p) - d(n,l) + second_margin]+

    There is no closed form over all quadruplets. Without `tuples` one triplet per anchor is drawn by distance weighting
    and a fourth item uniformly; mined triplets also get a uniform fourth item. Without a fourth item the second term
    leaves the tuple out.

    Args:
        margin: First margin, by default 1 ("as-run": 0.2).
        second_margin: Second margin, by default 0.5 ("as-run": 0.2).
        squared: Whether distances are squared, as in the paper.
        variant: "standard" has the published margins; "as-run" has those that Roth et al. (ICML 2020) most likely used
            for their tables.
        generator: Source of random numbers for the tuples; by default a new one with seed 0.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean" or "sum".

    Examples:
        >>> x, y = torch.eye(6), torch.arange(6) // 2
        >>> Quadruplet()(x, y).round(decimals=4)
        tensor(1.5000)
    """

    kind = "batch"
    measure = "squared-euclidean"
    uses_labels = True  # labels of a reference set: which two of its items are of different classes

    def __init__(
        self,
        margin: float | None = None,
        second_margin: float | None = None,
        squared: bool = False,
        variant: Literal["standard", "as-run"] = "standard",
        generator: torch.Generator | None = None,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_choice("variant", variant, ("standard", "as-run"))
        first, second = (1.0, 0.5) if variant == "standard" else (0.2, 0.2)
        self.margin = first if margin is None else margin
        self.second_margin = second if second_margin is None else second_margin
        self.squared = squared
        self.variant = variant
        self.miner = DistanceWeightedMiner(generator=generator)
        self.fourth = FourthItemMiner(generator=self.miner.generator)

    def select_tuples(self, tuples: Tuples | None, batch: PairBatch) -> Tuples | None:
        if isinstance(tuples, Quadruplets) or batch.references.shape[0] == 0:
            return tuples
        if isinstance(tuples, Relation):
            raise ValueError(
                "the quadruplet loss does not work on pairs: use a miner that draws triplets, or none; or pass "
                "triplets (anchor, positive, negative) or kinfold.pairs.Quadruplets"
            )
        if torch.compiler.is_compiling():  # random draws with plain operations take four times as long as the loss
            from kinfold.losses.uncompiled import run_uncompiled

            return cast("Tuples", run_uncompiled(self._draw, tuples, batch))
        return self._draw(tuples, batch)

    def _draw(self, tuples: Triplets | None, batch: PairBatch) -> Quadruplets:
        with torch.no_grad():
            triplets = self.miner.select(batch) if tuples is None else tuples
            assert isinstance(triplets, Triplets)
            return self.fourth.extend(triplets, batch)

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        assert isinstance(tuples, Quadruplets)
        positive, negative, fourth = scores if self.squared else safe_sqrt(scores)
        has_fourth = tuples.valid & tuples.has_fourth
        first = torch.where(tuples.valid, relu(positive - negative + self.margin), 0.0)
        second = torch.where(has_fourth, relu(positive - fourth + self.second_margin), 0.0)
        sums = torch.stack([first.sum(), second.sum()])
        counts = torch.stack([tuples.valid.sum(), has_fourth.sum()]).to(sums.dtype)
        return Terms(first + second, sums, counts)
