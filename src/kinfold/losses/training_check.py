"""Warn once if the parameters of a loss (proxies, beta) are not being trained."""

import warnings

import torch
from torch import nn

from kinfold.pairs.transforms import is_transformed

_STEPS = 50


class TrainingCheck:
    """Compare the parameters of a loss with their values some steps ago.

    A common mistake is to pass only the model's parameters to the optimizer: the loss then has gradients, but its
    proxies never change.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._first_sums: list[float] = []

    def __call__(self, loss: nn.Module) -> None:
        if is_transformed() or self._calls > _STEPS or not torch.is_grad_enabled():
            return
        parameters = [p for p in loss.parameters() if p.requires_grad and p.is_leaf]  # `Nested` passes parts of proxies
        if not parameters:
            return
        self._calls += 1
        if self._calls == 1:
            self._first_sums = [_sum(p) for p in parameters]
        elif self._calls == _STEPS:
            with_gradient = all(p.grad is not None for p in parameters)
            if with_gradient and self._first_sums == [_sum(p) for p in parameters]:
                names = ", ".join(name for name, p in loss.named_parameters() if p.requires_grad)
                warnings.warn(
                    f"{type(loss).__name__} has parameters ({names}) that did not change in {_STEPS} steps: "
                    "pass them to the optimizer too, as kinfold.losses.parameter_groups(model, loss) does.",
                    stacklevel=4,
                )


def _sum(parameter: nn.Parameter) -> float:
    return float(parameter.detach().sum(dtype=torch.float64))
