"""Optimizer steps for parameters with a sparse gradient: only rows with a gradient change, and so does their state.

Each row is updated as if the steps without a gradient for it did not exist: its moments do not decay meanwhile, and
Adam's bias correction counts the steps of the row. If every row has a gradient in every step, the result is that of the
dense optimizer.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_UNSUPPORTED = ("amsgrad", "centered", "maximize", "nesterov", "dampening", "capturable", "fused")


def update_rows(optimizer: Optimizer) -> Optimizer:
    """Let an optimizer of torch update parameters with a sparse gradient row by row, as sampled classes need.

    The state is part of the `state_dict` of the optimizer, in the names of torch; `step` has one number for each row.
    After a step, the gradients of these parameters are None. Dense gradients are treated as before.

    Args:
        optimizer: Adam, AdamW, SGD or RMSprop.

    Returns:
        The same optimizer.

    Raises:
        ValueError: The optimizer, or one of its options, is not supported.

    Examples:
        >>> import kinfold
        >>> loss = kinfold.losses.create("arcface", num_classes=1000, dim=8, class_share=0.1)
        >>> optimizer = update_rows(torch.optim.Adam(loss.parameters(), lr=0.01))
        >>> loss(torch.randn(4, 8), torch.tensor([3, 3, 7, 9])).backward()
        >>> optimizer.step()
        >>> int((optimizer.state[loss.proxies]["step"] > 0).sum())
        103
    """
    if type(optimizer) not in _UPDATES:
        names = ", ".join(kind.__name__ for kind in _UPDATES)
        raise ValueError(f"{type(optimizer).__name__} cannot update single rows; use one of {names}")
    for group in optimizer.param_groups:
        for option in _UNSUPPORTED:
            if group.get(option):
                raise ValueError(
                    f"{option}={group[option]!r} is not supported for updates of single rows; leave it out"
                )
    optimizer.register_step_pre_hook(_step_rows)
    return optimizer


@torch.no_grad()
def _step_rows(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.grad.is_sparse:
                gradient = parameter.grad.coalesce()
                rows, values = gradient.indices().squeeze(0), gradient.values()
                _UPDATES[type(optimizer)](_Rows(parameter, optimizer.state[parameter], rows), values, group)
                parameter.grad = None  # the optimizer leaves it out


class _Rows:
    """Some rows of a parameter and of its state.

    Args:
        parameter: The parameter, (C, ...).
        state: The state that the optimizer keeps for it.
        rows: Which rows, (n,).
    """

    def __init__(self, parameter: Tensor, state: dict[str, Any], rows: Tensor) -> None:
        self._parameter, self._state, self._rows = parameter, state, rows
        self.values = parameter[rows]

    def load(self, name: str) -> Tensor:
        """Return the rows of an entry of the state, zeros at first."""
        if name not in self._state:
            self._state[name] = torch.zeros_like(self._parameter)
        return self._state[name][self._rows]  # type: ignore[no-any-return]

    def count_step(self) -> Tensor:
        """Count this step, and return the number of steps of each row, in the shape (n, 1, ...)."""
        steps = self._state.get("step")
        if steps is None or steps.dim() == 0:  # all rows have been updated equally often
            steps = torch.full((len(self._parameter),), 0 if steps is None else int(steps), dtype=torch.int32)
            self._state["step"] = steps = steps.to(self._parameter.device)
        steps[self._rows] += 1
        return steps[self._rows].reshape(-1, *[1] * (self.values.dim() - 1))

    def store(self, values: Tensor, **state: Tensor) -> None:
        """Write new values and new entries of the state."""
        self._parameter[self._rows] = values
        for name, entry in state.items():
            self._state[name][self._rows] = entry


def _update_adam(rows: _Rows, gradient: Tensor, group: dict[str, Any], decoupled: bool = False) -> None:
    beta1, beta2 = group["betas"]
    values, decay = rows.values, group["weight_decay"]
    if decoupled:
        values = values * (1 - group["lr"] * decay)
    elif decay:
        gradient = gradient.add(values, alpha=decay)
    step = rows.count_step().to(torch.float64)
    first = rows.load("exp_avg").lerp_(gradient, 1 - beta1)
    second = rows.load("exp_avg_sq").mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    size = (group["lr"] / (1 - beta1**step)).to(values.dtype)
    scale = (1 - beta2**step).sqrt().to(values.dtype)
    values = values - size * first / (second.sqrt() / scale + group["eps"])
    rows.store(values, exp_avg=first, exp_avg_sq=second)


def _update_adamw(rows: _Rows, gradient: Tensor, group: dict[str, Any]) -> None:
    _update_adam(rows, gradient, group, decoupled=True)


def _update_sgd(rows: _Rows, gradient: Tensor, group: dict[str, Any]) -> None:
    if group["weight_decay"]:
        gradient = gradient.add(rows.values, alpha=group["weight_decay"])
    if not group["momentum"]:
        rows.store(rows.values.sub(gradient, alpha=group["lr"]))
        return
    momentum = rows.load("momentum_buffer").mul_(group["momentum"]).add_(gradient)
    rows.store(rows.values.sub(momentum, alpha=group["lr"]), momentum_buffer=momentum)


def _update_rmsprop(rows: _Rows, gradient: Tensor, group: dict[str, Any]) -> None:
    if group["weight_decay"]:
        gradient = gradient.add(rows.values, alpha=group["weight_decay"])
    rows.count_step()
    square = rows.load("square_avg").mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
    change = gradient / square.sqrt().add_(group["eps"])
    if not group["momentum"]:
        rows.store(rows.values.sub(change, alpha=group["lr"]), square_avg=square)
        return
    momentum = rows.load("momentum_buffer").mul_(group["momentum"]).add_(change)
    rows.store(rows.values.sub(momentum, alpha=group["lr"]), square_avg=square, momentum_buffer=momentum)


_UPDATES: dict[type[Optimizer], Any] = {
    torch.optim.Adam: _update_adam,
    torch.optim.AdamW: _update_adamw,
    torch.optim.SGD: _update_sgd,
    torch.optim.RMSprop: _update_rmsprop,
}
