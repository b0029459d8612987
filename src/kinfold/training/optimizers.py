"""The optimiser with its groups: backbone, head, and the loss' own parameters without weight decay."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer as TorchOptimizer

from kinfold.training.config.settings import OptimizerConfig

KINDS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}


def build_parameter_groups(model: nn.Module, objective: nn.Module, settings: OptimizerConfig) -> list[dict[str, Any]]:
    """Parameter groups with their names and base learning rates; empty ones are left out.

    What is below `model.head` makes a group of its own, so that a new head may learn faster than a trained backbone.
    """
    head = getattr(model, "head", None)
    heads = {id(p) for p in head.parameters()} if isinstance(head, nn.Module) else set()
    shared = {id(p) for p in model.parameters()}
    lr = settings.lr
    loss_lr = settings.loss_lr
    if loss_lr is None and settings.proxy_factor is not None and _has_class_vectors(objective):
        loss_lr = settings.proxy_factor * (lr if settings.head_lr is None else settings.head_lr)
    found = [
        ("backbone", [p for p in model.parameters() if id(p) not in heads], lr, settings.weight_decay),
        ("head", [p for p in model.parameters() if id(p) in heads], settings.head_lr, settings.weight_decay),
        # weight decay would pull class vectors and boundaries to zero for no reason
        ("loss", [p for p in objective.parameters() if id(p) not in shared], loss_lr, 0.0),
    ]
    made = []
    for name, parameters, rate, decay in found:
        trained = [p for p in parameters if p.requires_grad]
        if trained:
            rate = lr if rate is None else rate
            made.append({"params": trained, "name": name, "lr": rate, "base_lr": rate, "weight_decay": decay})
    return made


def _has_class_vectors(objective: nn.Module) -> bool:
    return any(getattr(module, "proxies", None) is not None for module in objective.modules())


def build_optimizer(
    model: nn.Module, objective: nn.Module, settings: OptimizerConfig, idle: bool = False
) -> TorchOptimizer:
    """`idle`: it will take no step, and there may be nothing to train."""
    made = build_parameter_groups(model, objective, settings)
    if idle and not made:
        made = [{"params": [], "name": "head", "lr": settings.lr, "base_lr": settings.lr}]
    if not made:
        raise ValueError(
            "nothing can be trained: neither the model nor the loss has a parameter with requires_grad; with "
            "training.steps = 0 the space is measured as it is"
        )
    options: dict[str, Any] = {"lr": settings.lr}
    if settings.name in ("sgd", "rmsprop"):
        options["momentum"] = settings.momentum
    made_optimizer: TorchOptimizer = KINDS[settings.name](made, **options)
    return made_optimizer


def set_rates(optimizer: TorchOptimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
