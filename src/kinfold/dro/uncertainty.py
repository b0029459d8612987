"""What all uncertainty sets share: groups, masks, and the robust value whose gradient is the worst-case weighting."""

import torch
from torch import Tensor


class UncertaintySet:
    """A set of weightings p of n losses; the robust value is the largest weighted sum over it.

    F = max over p in the set of sum_i p_i l_i (minus a penalty on p, where the set has one)

    Leading dimensions are groups, solved at once. `mask` says which entries exist; a group without any has weights zero
    and value zero. Sets count entries.
    """

    def weights(self, losses: Tensor, mask: Tensor | None = None) -> Tensor:
        """p* (..., n): non-negative, summing to one in every group that has an entry; no gradient."""
        with torch.no_grad():
            losses, mask = _checked(losses.detach(), mask)
            if losses.shape[-1] == 0:
                return losses
            found = self.solve(losses, mask)
            return torch.where(mask, found, 0.0)

    def value(self, losses: Tensor, mask: Tensor | None = None) -> Tensor:
        """F (...): its derivative by a loss is that loss' weight."""
        weights = self.weights(losses, mask)
        return (weights * losses).sum(dim=-1)

    def for_batch(self, anchors: int, entries_per_pair: float) -> "UncertaintySet":
        """The set for a batch of so many anchors; only `Robust` asks. A number of pairs becomes one of entries."""
        return self

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        """The weights; whatever stands outside the mask is discarded."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it solves")

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({options})"


def _checked(losses: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    if losses.dim() == 0 or not losses.is_floating_point():
        raise ValueError(f"losses must be a floating point tensor (..., n), got {losses.dtype} {tuple(losses.shape)}")
    if mask is None:
        return losses, torch.ones_like(losses, dtype=torch.bool)
    if mask.dtype != torch.bool or mask.shape != losses.shape:
        raise ValueError(f"mask must be boolean of shape {tuple(losses.shape)}, got {mask.dtype} {tuple(mask.shape)}")
    return losses, mask


def ties_of_the_largest(losses: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Which entries equal the largest of their group, and how many they are (..., 1)."""
    largest = losses.masked_fill(~mask, -torch.inf).amax(dim=-1, keepdim=True)
    ties = mask & (losses == largest)
    return ties, ties.sum(dim=-1, keepdim=True)


def number_of_entries(number: float | str, anchors: int) -> float:
    """A number as it is, or such as "2b": so many times the number of anchors."""
    if isinstance(number, str):
        if not (number.endswith("b") and number[:-1].isdigit() and int(number[:-1]) > 0):
            raise ValueError(f"the number of entries must be a number, or such as '2b' for 2 x anchors, got {number!r}")
        return int(number[:-1]) * anchors
    if not number >= 1:
        raise ValueError(f"k or effective, the number of entries, must be at least 1, got {number}")
    return number


def check_radius(effective: float | str | None, radius: float | None) -> None:
    """A ball has a radius, or the number of entries its weights may concentrate on."""
    if (effective is None) == (radius is None):
        raise ValueError("give either radius or effective (the number of entries the weights may concentrate on)")
    if effective is not None:
        number_of_entries(effective, 1)
    elif radius is not None and not radius >= 0:
        raise ValueError(f"radius must be at least 0, got {radius}")
