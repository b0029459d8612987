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
        gamma: Weight of the KL penalty, positive: the temperature of the softmax. A tensor (G,) has one for each of G
            groups, such as the gamma_i of every anchor in equation 7 of Qi et al. (ECCV 2020); in `Robust`, with
            group="anchor" or "anchor-sign", batches then have G anchors.

    Examples:
        >>> KL(gamma=0.001).weights(torch.tensor([1.0, 0.5]))
        tensor([1., 0.])
        >>> KL(torch.tensor([0.001, 1000.0])).weights(torch.tensor([[1.0, 0.0], [1.0, 0.0]])).round(decimals=2)
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000]])
    """

    def __init__(self, gamma: float | Tensor) -> None:
        smallest = float(gamma.min()) if isinstance(gamma, Tensor) else gamma
        if not smallest > 0:
            raise ValueError(f"gamma must be positive, got {smallest}")
        if isinstance(gamma, Tensor) and gamma.dim() != 1:
            raise ValueError(f"gamma must be a number or a tensor (G,), got {tuple(gamma.shape)}")
        self.gamma = gamma

    @property
    def groups(self) -> int | None:
        """The number of groups that this set is for; None for any."""
        return self.gamma.shape[0] if isinstance(self.gamma, Tensor) else None

    def value(self, losses: Tensor, mask: Tensor | None = None) -> Tensor:
        if losses.shape[-1] == 0:
            return losses.sum(dim=-1)
        if losses.dim() != 2:
            row_mask = None if mask is None else mask.reshape(-1, mask.shape[-1])
            return self.value(losses.reshape(-1, losses.shape[-1]), row_mask).reshape(losses.shape[:-1])
        mask = torch.ones_like(losses, dtype=torch.bool) if mask is None else mask
        entries = count(mask)
        log_entries = entries.clamp(min=1).to(losses.dtype).log()
        if isinstance(self.gamma, Tensor):
            gamma = self._match(losses)
            level = gamma * (masked_logsumexp(losses / gamma[:, None], mask) - log_entries)
        else:
            level = self.gamma * (masked_logsumexp(losses, mask, 1.0 / self.gamma) - log_entries)
        return torch.where(entries > 0, level, 0.0)

    @property
    def temperature(self) -> float | None:
        return None if isinstance(self.gamma, Tensor) else self.gamma

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        gamma = self._match(losses)[..., None] if isinstance(self.gamma, Tensor) else self.gamma
        return torch.softmax(mask_out(losses / gamma, mask), dim=-1)

    def _match(self, losses: Tensor) -> Tensor:
        """The gammas of the groups (...) of losses (..., n)."""
        assert isinstance(self.gamma, Tensor)
        if losses.shape[:-1].numel() != len(self.gamma):
            raise ValueError(
                f"gamma has {len(self.gamma)} values, one for each group, and losses are of shape {tuple(losses.shape)}"
            )
        return self.gamma.to(losses).reshape(losses.shape[:-1])
