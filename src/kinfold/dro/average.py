"""Average: every loss has the same weight."""

from torch import Tensor

from kinfold.dro.stream import Solver
from kinfold.dro.tilt_stream import TiltSolver
from kinfold.dro.uncertainty import UncertaintySet


class Average(UncertaintySet):
    """The set that contains only uniform weights: p = 1/n, F = the mean.

    Examples:
        >>> import torch
        >>> Average().weights(torch.tensor([3.0, 1.0]))
        tensor([0.5000, 0.5000])
    """

    def make_solver(self, copies: int) -> Solver:
        return TiltSolver(0.0, copies)

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        return mask / mask.sum(dim=-1, keepdim=True).clamp(min=1).to(losses.dtype)
