"""The optimizer, its parameter groups (backbone, head, loss) and the learning rate schedule."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer as TorchOptimizer

from kinfold.losses import ProxyLoss, update_rows
from kinfold.losses.class_shards import ClassShard
from kinfold.training.config.settings import OptimizerConfig, ScheduleConfig

_OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}


def build_optimizer(
    model: nn.Module, objective: nn.Module, config: OptimizerConfig, idle: bool = False
) -> TorchOptimizer:
    """Build the optimizer of the model and of the loss' own parameters.

    Args:
        model: The network.
        objective: What is minimized.
        config: The settings.
        idle: The optimizer will take no step, so that nothing needs to be trainable.

    Raises:
        ValueError: Nothing can be trained, or `loss_lr` would be ignored.
    """
    groups = build_parameter_groups(model, objective, config)
    if not idle:
        check_loss_lr(objective, config)
    elif not groups:
        groups = [{"params": [], "name": "head", "lr": config.lr, "base_lr": config.lr}]
    if not groups:
        raise ValueError(
            "nothing can be trained: neither the model nor the loss has a parameter with requires_grad; with "
            "training.steps = 0 the embedding is measured as it is"
        )
    options: dict[str, Any] = {"lr": config.lr}
    if config.name in ("sgd", "rmsprop"):
        options["momentum"] = config.momentum
    optimizer: TorchOptimizer = _OPTIMIZERS[config.name](groups, **options)
    is_sampled = any(isinstance(m, ProxyLoss) and m.class_share < 1 for m in objective.modules())
    return update_rows(optimizer) if is_sampled else optimizer


def build_parameter_groups(model: nn.Module, objective: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Return the parameter groups with their names and base learning rates; empty ones are left out.

    Parameters of `model.head` are a group of their own, so that a new head can learn faster than a trained backbone.
    """
    head = getattr(model, "head", None)
    head_ids = {id(p) for p in head.parameters()} if isinstance(head, nn.Module) else set()
    model_ids = {id(p) for p in model.parameters()}
    loss_lr = config.loss_lr
    if loss_lr is None and config.proxy_factor is not None and _has_proxies(objective):
        loss_lr = config.proxy_factor * (config.lr if config.head_lr is None else config.head_lr)
    candidates: list[tuple[str, list[nn.Parameter], float | None, float]] = [
        *_list_backbone_groups(model, head_ids, config),
        ("head", [p for p in model.parameters() if id(p) in head_ids], config.head_lr, config.weight_decay),
        # weight decay would pull proxies and boundaries to zero
        ("loss", [p for p in objective.parameters() if id(p) not in model_ids], loss_lr, 0.0),
    ]
    groups: list[dict[str, Any]] = []
    for name, parameters, lr, weight_decay in candidates:
        trainable = [p for p in parameters if p.requires_grad]
        if trainable:
            lr = config.lr if lr is None else lr
            groups.append({"params": trainable, "name": name, "lr": lr, "base_lr": lr, "weight_decay": weight_decay})
    return groups


def _list_backbone_groups(
    model: nn.Module, head_ids: set[int], config: OptimizerConfig
) -> list[tuple[str, list[nn.Parameter], float | None, float]]:
    """One group for the backbone, or with `layer_decay` one for each stage; what follows the last has the full rate."""
    named = [(name, p) for name, p in model.named_parameters() if id(p) not in head_ids]
    if config.layer_decay == 1:
        return [("backbone", [p for _, p in named], config.lr, config.weight_decay)]
    stages = tuple(f"backbone.{stage}." for stage in getattr(getattr(model, "backbone", None), "stages", ()))
    if not stages:
        raise ValueError(
            f"optimizer.layer_decay = {config.layer_decay:g} needs a backbone with stages, and this one has none; "
            "leave it out"
        )
    depths: dict[int, list[nn.Parameter]] = {}
    depth = len(stages)
    for name, parameter in reversed(named):  # parameters are in the order in which the network runs
        depth = next((number for number, stage in enumerate(stages) if name.startswith(stage)), depth)
        depths.setdefault(depth, []).insert(0, parameter)
    last = len(stages)
    return [
        (f"backbone-{depth}", parameters, config.lr * config.layer_decay ** (last - depth), config.weight_decay)
        for depth, parameters in sorted(depths.items())
    ]


def check_loss_lr(objective: nn.Module, config: OptimizerConfig) -> None:
    """Raise a ValueError where `loss_lr` is set and the loss has no parameter to train."""
    if config.loss_lr is not None and not any(parameter.requires_grad for parameter in objective.parameters()):
        raise ValueError(
            f"optimizer.loss_lr={config.loss_lr:g} is for parameters of the loss, and this loss has none to train; "
            "leave it out"
        )


def _has_proxies(objective: nn.Module) -> bool:
    return any(getattr(module, "proxies", None) is not None for module in objective.modules())


def save_optimizer_state(optimizer: TorchOptimizer) -> dict[str, Any]:
    """Return the state of an optimizer as if one process held all class vectors; called on all processes."""
    state = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, values in state["state"].items():
        shard = _get_shard(parameters[number])
        if shard is not None:
            rows = len(parameters[number])
            state["state"][number] = {
                name: shard.gather(value) if _has_rows(value, rows) else value for name, value in values.items()
            }
    return state


def _take_shards(optimizer: TorchOptimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Keep the rows of this process of what `save_optimizer_state` returned."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    local = dict(state["state"])
    for number, values in local.items():
        shard = _get_shard(parameters[number])
        if shard is not None:
            local[number] = {
                name: value[shard.rows] if _has_rows(value, shard.total) else value for name, value in values.items()
            }
    return {**state, "state": local}


def _get_shard(parameter: Tensor) -> ClassShard | None:
    """The classes whose vectors a parameter holds; None if it is not sharded."""
    return getattr(parameter, "class_shard", None)


def _has_rows(value: object, rows: int) -> bool:
    """Whether an entry of the state has something for each class, unlike the number of steps."""
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == rows


def load_optimizer_state(optimizer: TorchOptimizer, state: dict[str, Any]) -> None:
    """Restore what `save_optimizer_state` returned, with tensors in the memory format of their parameters."""
    optimizer.load_state_dict(_take_shards(optimizer, state))
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def set_learning_rates(optimizer: TorchOptimizer, factor: float) -> None:
    """Set every learning rate to its base rate times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


def compute_lr_factor(schedule: ScheduleConfig, step: int, steps: int) -> float:
    """Return the factor on every learning rate at `step` (from 0) of `steps`, a pure function without state.

    Examples:
        >>> [round(compute_lr_factor(ScheduleConfig("cosine", warmup=2), step, 6), 3) for step in range(6)]
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    after_warmup = step - schedule.warmup
    share = min(1.0, after_warmup / max(1, steps - schedule.warmup))
    if schedule.name == "cosine":
        return schedule.floor + (1 - schedule.floor) * (1 + math.cos(math.pi * share)) / 2
    if schedule.name == "linear":
        return schedule.floor + (1 - schedule.floor) * (1 - share)
    if schedule.name == "step":
        return float(schedule.factor ** (after_warmup // schedule.every))
    if schedule.name == "milestones":
        return float(schedule.factor ** sum(step >= milestone for milestone in schedule.at))
    return 1.0
