"""One uniformly drawn positive per anchor, with all its negatives: the choice inside n-pair and angular losses."""

from typing import Literal, Self

import torch
from torch import Tensor

from kinfold.miners.drawing import choose
from kinfold.miners.miner import Miner
from kinfold.pairs import Relation, View


class OnePositive(Miner):
    """Keep one positive of each anchor; the negatives stay as they are."""

    def mine(self, seen: View) -> Relation:
        return Relation(self.narrow(seen.relation.positives), seen.relation.negatives)

    def narrow(self, positives: Tensor) -> Tensor:
        """The mask with at most one True in each row."""
        index, found = choose(positives, self.generator)
        return torch.zeros_like(positives).scatter_(1, index[:, None], found[:, None])

    @classmethod
    def option(cls, positives: Literal["all", "one"], generator: torch.Generator | None) -> Self | None:
        """The chooser for a loss' option `positives="all" | "one"`."""
        if positives not in ("all", "one"):
            raise ValueError(f"positives must be 'all' or 'one', got {positives!r}")
        return cls(generator) if positives == "one" else None
