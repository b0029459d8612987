"""Uniform triplets: what mining is to be compared with."""

from typing import Literal

import torch
from torch import Tensor

from kinfold.miners.drawing import choose
from kinfold.miners.miner import Miner
from kinfold.pairs import Triplets, View


class Random(Miner):
    """`scope="anchor"`: for every anchor a uniform positive and a uniform negative. `scope="batch"`: as many triplets
    as anchors, uniform over all valid triplets of the batch without replacement, so that an anchor may occur often or
    never (the form the study of Roth et al., 2020, ran)."""

    def __init__(
        self,
        scope: Literal["anchor", "batch"] = "anchor",
        switch: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator, switch)
        if scope not in ("anchor", "batch"):
            raise ValueError(f"scope must be 'anchor' or 'batch', got {scope!r}")
        if scope == "batch" and switch > 0:
            raise ValueError("switch replaces the triplet of an anchor: it needs scope='anchor'")
        self.scope = scope
        self.by_rows = scope == "anchor"

    def mine(self, seen: View) -> Triplets:
        if self.scope == "batch":
            return self._over_batch(seen)
        positive, has_positive = choose(seen.relation.positives, self.generator)
        negative, has_negative = choose(seen.relation.negatives, self.generator)
        return self.triplets(seen, positive, negative, has_positive & has_negative)

    def _over_batch(self, seen: View) -> Triplets:
        """Number all triplets anchor by anchor, draw numbers, and read each back as (anchor, i-th kin, j-th other)."""
        positives, negatives = seen.relation.positives, seen.relation.negatives
        kin, other = positives.sum(dim=1), negatives.sum(dim=1)
        last = (kin * other).cumsum(dim=0)
        count, total = positives.shape[0], int(last[-1]) if len(last) else 0
        number = torch.zeros(count, dtype=torch.int64, device=kin.device)
        valid = torch.arange(count, device=kin.device) < total
        number[valid] = self._distinct(min(count, total), total).to(kin.device)
        anchor = torch.searchsorted(last, number, right=True).clamp(max=max(count - 1, 0))
        within = number - (last - kin * other)[anchor] if count else number
        width = other[anchor].clamp(min=1) if count else number
        positive = _column_of_rank(positives[anchor], within // width)
        negative = _column_of_rank(negatives[anchor], within % width)
        return Triplets(anchor, positive, negative, valid)

    def _distinct(self, count: int, total: int) -> Tensor:
        """`count` different whole numbers below `total`, uniformly."""
        device = self.generator.device
        if total <= 4 * count:
            return torch.randperm(total, generator=self.generator, device=device)[:count]
        drawn = torch.empty(0, dtype=torch.int64, device=device)
        while len(drawn) < count:
            more = torch.randint(total, (count,), generator=self.generator, device=device)
            values, first = torch.unique(torch.cat([drawn, more]), return_inverse=True)
            # keep the order of drawing: a sorted prefix would favour small numbers
            order = torch.full_like(values, len(first)).scatter_reduce(
                0, first, torch.arange(len(first), device=device), "amin"
            )
            drawn = values[order.argsort()]
        return drawn[:count]


def _column_of_rank(mask: Tensor, rank: Tensor) -> Tensor:
    """Column of the rank-th True of each row."""
    if mask.numel() == 0:
        return torch.zeros_like(rank)
    running = mask.cumsum(dim=1)
    return torch.searchsorted(running, (rank + 1)[:, None]).squeeze(1).clamp(max=mask.shape[1] - 1)
