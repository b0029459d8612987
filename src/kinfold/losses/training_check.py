"""Notice when the parameters of a loss (proxies, beta) are not being trained, and say so once."""

import warnings

import torch
from torch import nn

from kinfold.pairs.transforms import is_transformed

_PATIENCE = 50


class TrainingCheck:
    """Compares a loss' parameters with what they were some steps ago.

    The usual mistake is to give the optimiser the model's parameters alone: the loss then has gradients, but nothing
    ever moves its proxies.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._seen: list[float] = []

    def __call__(self, loss: nn.Module) -> None:
        if is_transformed() or self._calls > _PATIENCE or not torch.is_grad_enabled():
            return
        parameters = [p for p in loss.parameters() if p.requires_grad]
        if not parameters:
            return
        self._calls += 1
        if self._calls == 1:
            self._seen = [_sum(p) for p in parameters]
        elif self._calls == _PATIENCE:
            with_gradient = all(p.grad is not None for p in parameters)
            if with_gradient and self._seen == [_sum(p) for p in parameters]:
                names = ", ".join(name for name, p in loss.named_parameters() if p.requires_grad)
                warnings.warn(
                    f"{type(loss).__name__} has parameters ({names}) that did not change in {_PATIENCE} steps: "
                    "give them to the optimiser too, as kinfold.losses.parameter_groups(model, loss) does.",
                    stacklevel=4,
                )


def _sum(parameter: nn.Parameter) -> float:
    return float(parameter.detach().double().sum())
