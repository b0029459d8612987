"""Simplex: all weight on the largest loss."""

from torch import Tensor

from kinfold.dro.stream import LargestSolver, Solver
from kinfold.dro.uncertainty import UncertaintySet, find_largest


class Simplex(UncertaintySet):
    """All p >= 0 with sum 1:  p = 1 on the largest loss, shared equally among ties; F = the maximum.

    Examples:
        >>> import torch
        >>> Simplex().weights(torch.tensor([0.5, 2.0, 2.0]))
        tensor([0.0000, 0.5000, 0.5000])
    """

    def make_solver(self, copies: int) -> Solver:
        return LargestSolver(copies)

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        is_largest, num_largest = find_largest(losses, mask)
        return is_largest / num_largest.clamp(min=1).to(losses.dtype)
