"""Parameter groups for an optimizer: those of the model, and those of the loss with another learning rate."""

import warnings
from typing import Any

from torch import nn


def parameter_groups(
    model: nn.Module, loss: nn.Module, *, proxy_lr: float | None = None, lr: float | None = None
) -> list[dict[str, Any]]:
    """Return parameter groups of a model and its loss for any torch optimizer.

    The group of the loss (proxies, beta) has no weight decay, which would pull class vectors towards zero. A parameter
    that the model and the loss share is in the group of the model.

    Args:
        model: The network.
        loss: The loss; its group is left out if it has no parameters.
        proxy_lr: Learning rate of the loss' parameters. Without it they get the optimizer's rate, which is usually far
            too small for them: published settings are 50 to 500 times the rate of the network.
        lr: Learning rate of the model; by default the optimizer's.

    Examples:
        >>> import torch, kinfold
        >>> loss = kinfold.losses.create("proxy-nca", num_classes=3, dim=2)
        >>> groups = parameter_groups(nn.Linear(4, 2), loss, proxy_lr=5e-4)
        >>> torch.optim.AdamW(groups, lr=1e-5, weight_decay=4e-4).param_groups[1]["weight_decay"]
        0.0
    """
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    if lr is not None:
        groups[0]["lr"] = lr
    in_model = {id(p) for p in model.parameters()}
    parameters = {name: p for name, p in loss.named_parameters() if id(p) not in in_model}
    frozen = [name for name, p in parameters.items() if not p.requires_grad]
    if frozen:
        warnings.warn(
            f"{type(loss).__name__} has parameters that will not be trained: {', '.join(frozen)} "
            "(requires_grad is False); call .requires_grad_() on the loss, or choose its option for a constant.",
            stacklevel=2,
        )
    trained = [p for p in parameters.values() if p.requires_grad]
    if trained:
        groups.append({"params": trained, "weight_decay": 0.0})
        if proxy_lr is not None:
            groups[1]["lr"] = proxy_lr
    return groups
