"""KL-regularized weights of the best case: every loss counts, large ones exponentially less."""

from torch import Tensor

from kinfold.dro.kl import KL
from kinfold.dro.uncertainty import UncertaintySet


class OptimisticKL(UncertaintySet):
    """min over the simplex of sum p l + gamma KL(p || uniform):  p = softmax(-l / gamma).

    F = -gamma (log sum exp(-l / gamma) - log n), between the mean (large gamma) and the minimum (small gamma): `KL`
    with a negative temperature. Pairs with wrong labels have large losses, and count little.

    Args:
        gamma: Weight of the KL penalty, positive.

    Examples:
        >>> import torch
        >>> OptimisticKL(gamma=0.001).weights(torch.tensor([1.0, 0.5]))
        tensor([0., 1.])
    """

    def __init__(self, gamma: float) -> None:
        self._pessimistic = KL(gamma)
        self.gamma = gamma

    def value(self, losses: Tensor, mask: Tensor | None = None) -> Tensor:
        return -self._pessimistic.value(-losses, mask)

    def solve(self, losses: Tensor, mask: Tensor) -> Tensor:
        return self._pessimistic.solve(-losses, mask)

    def __repr__(self) -> str:
        return f"OptimisticKL(gamma={self.gamma!r})"
