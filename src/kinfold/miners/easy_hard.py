"""Easy, semi-hard or hard positives and negatives in any combination (Xuan et al., WACV 2020)."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Relation, Triplets
from kinfold.pairs.distances import Distance
from kinfold.registry import check_choice

Choice: TypeAlias = Literal["easy", "semihard", "hard", "all"]
CHOICES = ("easy", "semihard", "hard", "all")


class EasyHardMiner(Miner):
    """Select one positive and one negative of each anchor by their distance. Nothing is random.

    A positive is easy if it is the nearest one, hard if it is the farthest. A negative is easy if it is the farthest,
    hard if it is the nearest. A semi-hard one is the hardest that still leaves the negative farther than the positive.

    Args:
        positive: "easy" as in the paper, "semihard", "hard", or "all".
        negative: "semihard" as in the paper, "easy", "hard", or "all". If one side is "all", pairs are selected instead
            of triplets; "semihard" needs one item on the other side.
        positive_range, negative_range: Smallest and largest distance of a pair that may be selected.
        distance: How pairs are measured; None as the loss in `Mined`, else unit vectors. See `kinfold.pairs.distances`.
    """

    def __init__(
        self,
        positive: Choice = "easy",
        negative: Choice = "semihard",
        positive_range: tuple[float, float] | None = None,
        negative_range: tuple[float, float] | None = None,
        distance: Distance | None = None,
    ) -> None:
        super().__init__(distance=distance)
        for name, value in (("positive", positive), ("negative", negative)):
            check_choice(name, value, CHOICES)
        if "semihard" in (positive, negative) and (positive == negative or "all" in (positive, negative)):
            raise ValueError(
                f"positive={positive!r}, negative={negative!r}: a semi-hard item is chosen by the distance of one item "
                "on the other side; make that side 'easy' or 'hard'"
            )
        self.positive = positive
        self.negative = negative
        self.positive_range = positive_range
        self.negative_range = negative_range

    def mine(self, batch: PairBatch) -> Relation | Triplets:
        distance = self.compute_distances(batch)
        positives = _within(distance, batch.relation.positives, self.positive_range)
        negatives = _within(distance, batch.relation.negatives, self.negative_range)
        if distance.shape[1] > 0 and self.positive == "semihard":
            limit = self._pick(distance, negatives, nearest=self.negative == "hard")[1]
            positives = positives & (distance < limit)
        if distance.shape[1] > 0 and self.negative == "semihard":
            limit = self._pick(distance, positives, nearest=self.positive == "easy")[1]
            negatives = negatives & (distance > limit)
        if "all" in (self.positive, self.negative):
            return Relation(
                positives if self.positive == "all" else self._keep_one(distance, positives, self.positive == "easy"),
                negatives if self.negative == "all" else self._keep_one(distance, negatives, self.negative == "hard"),
            )
        both = positives.any(dim=1) & negatives.any(dim=1)
        index = torch.zeros_like(both, dtype=torch.int64)
        positive = negative = index
        if distance.shape[1] > 0:
            positive = self._pick(distance, positives, nearest=self.positive == "easy")[0]
            negative = self._pick(distance, negatives, nearest=self.negative != "easy")[0]
        return self.make_triplets(batch, positive, negative, both)

    @staticmethod
    def _pick(distance: Tensor, mask: Tensor, *, nearest: bool) -> tuple[Tensor, Tensor]:
        """Column (B,) and distance (B, 1) of the nearest or farthest marked item; NaN if there is none."""
        ordered = torch.where(mask, -distance if nearest else distance, -torch.inf)
        column = ordered.argmax(dim=1)
        chosen = distance.gather(1, column[:, None])
        return column, torch.where(mask.any(dim=1, keepdim=True), chosen, torch.nan)

    def _keep_one(self, distance: Tensor, mask: Tensor, nearest: bool) -> Tensor:
        if distance.shape[1] == 0:
            return mask
        column = self._pick(distance, mask, nearest=nearest)[0]
        return mask & torch.zeros_like(mask).scatter(1, column[:, None], True)


def _within(distance: Tensor, mask: Tensor, limits: tuple[float, float] | None) -> Tensor:
    """Narrow a mask to distances between two limits, which belong to the range."""
    return mask if limits is None else mask & (distance >= limits[0]) & (distance <= limits[1])
