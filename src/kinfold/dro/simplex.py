"""Simplex: all the weight on the largest loss."""

from torch import Tensor

from kinfold.dro.uncertainty import UncertaintySet, ties_of_the_largest


class Simplex(UncertaintySet):
    """All p >= 0 with sum 1:  p = 1 on the largest loss, shared equally among ties; F = the maximum.

    >>> import torch
    >>> Simplex().weights(torch.tensor([0.5, 2.0, 2.0]))
    tensor([0.0000, 0.5000, 0.5000])
    """

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        ties, tied = ties_of_the_largest(losses, mask)
        return ties / tied.clamp(min=1).to(losses.dtype)
