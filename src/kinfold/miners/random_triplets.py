"""Uniformly drawn triplets: the baseline of other miners."""

from typing import Literal

import torch
from torch import Tensor

from kinfold.miners.drawing import draw_uniform
from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Triplets


class RandomMiner(Miner):
    """Draw triplets uniformly.

    Args:
        scope: "anchor" draws a positive and a negative for every anchor. "batch" draws as many triplets as there are
            anchors from all valid triplets of the batch, without replacement, so that an anchor may be drawn several
            times or never (as in the experiments of Roth et al., 2020).
        switch: Probability of replacing a triplet by (a, a, n) with n of the class of a, see `Miner`; needs
            scope="anchor".
        generator: Source of random numbers; by default a new one with seed 0.
    """

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
        self.supports_chunks = scope == "anchor"

    def mine(self, batch: PairBatch) -> Triplets:
        if self.scope == "batch":
            return self._mine_batch(batch)
        positive, has_positive = draw_uniform(batch.relation.positives, self.generator)
        negative, has_negative = draw_uniform(batch.relation.negatives, self.generator)
        return self.make_triplets(batch, positive, negative, has_positive & has_negative)

    def _mine_batch(self, batch: PairBatch) -> Triplets:
        """Number all triplets anchor by anchor, draw numbers, and convert each to (anchor, i-th positive, j-th
        negative)."""
        positives, negatives = batch.relation.positives, batch.relation.negatives
        num_negatives = negatives.sum(dim=1)
        num_triplets = positives.sum(dim=1) * num_negatives
        last = num_triplets.cumsum(dim=0)
        count, total = positives.shape[0], int(last[-1]) if len(last) else 0
        number = torch.zeros(count, dtype=torch.int64, device=last.device)
        valid = torch.arange(count, device=last.device) < total
        number[valid] = self._draw_distinct(min(count, total), total).to(last.device)
        anchor = torch.searchsorted(last, number, right=True).clamp(max=max(count - 1, 0))
        within = number - (last - num_triplets)[anchor] if count else number
        width = num_negatives[anchor].clamp(min=1) if count else number
        positive = _find_column(positives[anchor], within // width)
        negative = _find_column(negatives[anchor], within % width)
        return Triplets(anchor, positive, negative, valid)

    def _draw_distinct(self, count: int, total: int) -> Tensor:
        """Draw `count` different integers below `total` uniformly."""
        device = self.generator.device
        if total <= 4 * count:
            return torch.randperm(total, generator=self.generator, device=device)[:count]
        drawn = torch.empty(0, dtype=torch.int64, device=device)
        while len(drawn) < count:
            more = torch.randint(total, (count,), generator=self.generator, device=device)
            values, first = torch.unique(torch.cat([drawn, more]), return_inverse=True)
            # keep the order of the draws: a sorted prefix would prefer small numbers
            order = torch.full_like(values, len(first)).scatter_reduce(
                0, first, torch.arange(len(first), device=device), "amin"
            )
            drawn = values[order.argsort()]
        return drawn[:count]


def _find_column(mask: Tensor, index: Tensor) -> Tensor:
    """Column of the True entry number `index` (from 0) of each row, (B,)."""
    if mask.numel() == 0:
        return torch.zeros_like(index)
    counts = mask.cumsum(dim=1)
    return torch.searchsorted(counts, (index + 1)[:, None]).squeeze(1).clamp(max=mask.shape[1] - 1)
