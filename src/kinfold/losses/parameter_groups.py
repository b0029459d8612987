"""Parameter groups for an optimiser: the model's, and the loss' own with its own learning rate and no weight decay."""

import warnings
from typing import Any

from torch import nn


def parameter_groups(
    model: nn.Module, loss: nn.Module, *, proxy_lr: float | None = None, lr: float | None = None
) -> list[dict[str, Any]]:
    """Groups for any torch optimiser. A parameter that model and loss share stays with the model.

    `proxy_lr` is the learning rate of the loss' parameters (proxies, beta); without it they take the optimiser's, which
    is usually far too small for them (published settings are 50 to 500 times that of the network). Weight decay pulls
    class vectors to zero for no reason: their group has none.

    >>> import torch, kinfold
    >>> loss = kinfold.losses.create("proxy-nca", num_classes=3, dim=2)
    >>> groups = parameter_groups(nn.Linear(4, 2), loss, proxy_lr=5e-4)
    >>> torch.optim.AdamW(groups, lr=1e-5, weight_decay=4e-4).param_groups[1]["weight_decay"]
    0.0
    """
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    if lr is not None:
        groups[0]["lr"] = lr
    own = {id(p) for p in model.parameters()}
    extra = {name: p for name, p in loss.named_parameters() if id(p) not in own}
    frozen = [name for name, p in extra.items() if not p.requires_grad]
    if frozen:
        warnings.warn(
            f"{type(loss).__name__} has parameters that will not be trained: {', '.join(frozen)} "
            "(requires_grad is False); call .requires_grad_() on the loss, or choose its option for a constant.",
            stacklevel=2,
        )
    trained = [p for p in extra.values() if p.requires_grad]
    if trained:
        groups.append({"params": trained, "weight_decay": 0.0})
        if proxy_lr is not None:
            groups[1]["lr"] = proxy_lr
    return groups
