"""What all uncertainty sets share: groups, masks, and the robust value, whose gradient is the worst-case weighting."""

import torch
from torch import Tensor

from kinfold.dro.stream import Solver


class UncertaintySet:
    """Base class: a set of weightings p of n losses. The robust value F is the largest weighted sum over the set.

    F = max over p in the set of sum_i p_i l_i (minus a penalty on p, if the set has one)

    Leading dimensions are groups, which are solved at once. A group without entries has zero weights and value zero. A
    subclass implements `solve`.
    """

    def weights(self, losses: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the worst-case weights p* (..., n), without gradient.

        They are not negative and sum to one in every group that has an entry.

        Args:
            losses: (..., n).
            mask: Which losses exist, boolean (..., n); by default all.
        """
        with torch.no_grad():
            losses, mask = _check_losses(losses.detach(), mask)
            if losses.shape[-1] == 0:
                return losses
            return torch.where(mask, self.solve(losses, mask), 0.0)

    def value(self, losses: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the robust value F (...), whose derivative by a loss is its weight; arguments as in `weights`."""
        weights = self.weights(losses, mask)
        return (weights * losses).sum(dim=-1)

    def for_batch(self, anchors: int, entries_per_pair: float) -> "UncertaintySet":
        """Return the set for a batch; called by `Robust`.

        Args:
            anchors: Number of anchors, which replaces "b" in options such as "2b".
            entries_per_pair: How often a pair occurs in the matrix; a number of pairs becomes a number of entries.
        """
        return self

    @property
    def temperature(self) -> float | None:
        """gamma of a set whose value is gamma log mean exp(l / gamma); None for all others."""
        return None

    def make_solver(self, copies: int) -> Solver | None:
        """Return a solver for losses that come in parts; None if the set needs all losses at once.

        Args:
            copies: How many entries of a group each loss stands for.
        """
        return None

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        """Compute the weights (..., n); values outside the mask are ignored."""
        raise NotImplementedError(f"{type(self).__name__} does not implement solve(losses, mask)")

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({options})"


def _check_losses(losses: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    if losses.dim() == 0 or not losses.is_floating_point():
        raise ValueError(f"losses must be a floating point tensor (..., n), got {losses.dtype} {tuple(losses.shape)}")
    if mask is None:
        return losses, torch.ones_like(losses, dtype=torch.bool)
    if mask.dtype != torch.bool or mask.shape != losses.shape:
        raise ValueError(f"mask must be boolean of shape {tuple(losses.shape)}, got {mask.dtype} {tuple(mask.shape)}")
    return losses, mask


def find_largest(losses: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mark the entries that equal the largest of their group, and count them (..., 1)."""
    largest = losses.masked_fill(~mask, -torch.inf).amax(dim=-1, keepdim=True)
    is_largest = mask & (losses == largest)
    return is_largest, is_largest.sum(dim=-1, keepdim=True)


def resolve_count(number: float | str, anchors: int) -> float:
    """Convert a number of entries: a number stays, a string such as "2b" is that many times the number of anchors."""
    if isinstance(number, str):
        if not (number.endswith("b") and number[:-1].isdigit() and int(number[:-1]) > 0):
            raise ValueError(f"the number of entries must be a number, or such as '2b' for 2 x anchors, got {number!r}")
        return int(number[:-1]) * anchors
    if not number >= 1:
        raise ValueError(f"k or effective, the number of entries, must be at least 1, got {number}")
    return number


def check_radius(effective: float | str | None, radius: float | None) -> None:
    """Raise ValueError unless exactly one of `radius` and `effective` is set, with an allowed value."""
    if (effective is None) == (radius is None):
        raise ValueError("pass either radius or effective (the number of entries the weights may concentrate on)")
    if effective is not None:
        resolve_count(effective, 1)
    elif radius is not None and not radius >= 0:
        raise ValueError(f"radius must be at least 0, got {radius}")


def limit_effective(effective: float | str | None, count: Tensor) -> Tensor:
    """Return min(effective, count) for groups of `count` entries."""
    assert effective is not None
    if isinstance(effective, str):
        raise ValueError(f"effective={effective!r} depends on the number of anchors: use the set in Robust")
    return torch.minimum(count, torch.full_like(count, effective))
