"""KL-regularized weights: every loss counts, hard ones exponentially more."""

import torch
from torch import Tensor

from kinfold.dro.uncertainty import UncertaintySet
from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.pairs.masks import count, mask_out


class KL(UncertaintySet):
    """max over the simplex of sum p l - gamma KL(p || uniform):  p = softmax(l / gamma).

    F = gamma (log sum exp(l / gamma) - log n), between the mean (large gamma) and the maximum (small gamma).

    Args:
        gamma: Weight of the KL penalty, positive: the temperature of the softmax.

    Examples:
        >>> KL(gamma=0.001).weights(torch.tensor([1.0, 0.5]))
        tensor([1., 0.])
    """

    def __init__(self, gamma: float) -> None:
        if not gamma > 0:
            raise ValueError(f"gamma must be positive, got {gamma}")
        self.gamma = gamma

    def value(self, losses: Tensor, mask: Tensor | None = None) -> Tensor:
        if losses.shape[-1] == 0:
            return losses.sum(dim=-1)
        rows = losses.reshape(-1, losses.shape[-1])
        row_mask = torch.ones_like(rows, dtype=torch.bool) if mask is None else mask.reshape(rows.shape)
        entries = count(row_mask)
        level = masked_logsumexp(rows, row_mask, 1.0 / self.gamma) - entries.clamp(min=1).to(rows.dtype).log()
        return torch.where(entries > 0, self.gamma * level, 0.0).reshape(losses.shape[:-1])

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(mask_out(losses / self.gamma, mask), dim=-1)
