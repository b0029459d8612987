"""One random positive per anchor, with all its negatives: an option of the n-pair and angular losses."""

from typing import Literal, Self

import torch
from torch import Tensor

from kinfold.miners.drawing import draw_uniform
from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Relation


class OnePositiveMiner(Miner):
    """Keep one uniformly drawn positive of each anchor and all negatives."""

    def mine(self, batch: PairBatch) -> Relation:
        return Relation(self.narrow(batch.relation.positives), batch.relation.negatives)

    def narrow(self, positives: Tensor) -> Tensor:
        """Return the mask with at most one True entry in each row."""
        index, exists = draw_uniform(positives, self.generator)
        return torch.zeros_like(positives).scatter_(1, index[:, None], exists[:, None])

    @classmethod
    def from_option(cls, positives: Literal["all", "one"], generator: torch.Generator | None) -> Self | None:
        """Return the miner for the option `positives` of a loss: None for "all"."""
        if positives not in ("all", "one"):
            raise ValueError(f"positives must be 'all' or 'one', got {positives!r}")
        return cls(generator) if positives == "one" else None
