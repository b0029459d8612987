"""The robust value of KL over a stream of losses: log-mean-exp and its gradient from one pass over tiles.

The log-sum-exp of all losses is that of the values of the tiles, and its gradient is the sum of the gradients of the
tiles, weighted by the softmax of these values.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kinfold.losses.totals import TileObjective, Total


class LogMeanExpTotal(Total):
    """The sum over groups of scale * log mean exp.

    The contribution of a tile is the log-sum-exp of each group, (k,).

    Args:
        scales: What the value of each group is multiplied with, k numbers.
    """

    def __init__(self, scales: Sequence[float]) -> None:
        super().__init__(TileObjective(is_mean=True, is_whole=False, copies=1))
        self._scales = scales

    def add(self, contribution: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        old = self._sums
        super().add(contribution, counts)
        self._sums = contribution if old is None else torch.logaddexp(old, contribution)
        earlier = torch.zeros_like(contribution) if old is None else (old - self._sums).exp()
        return earlier, (contribution - self._sums).exp()

    def factors(self) -> Tensor:
        assert self._counts is not None
        return self._counts.new_tensor(self._scales) * (self._counts > 0)

    def reduce(self) -> Tensor:
        assert self._sums is not None
        assert self._counts is not None
        return (self.factors() * (self._sums - self._counts.clamp(min=1).log())).sum()
