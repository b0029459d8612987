"""Ranges of the settings of a run, and combinations in which one setting would be ignored."""

import math
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from kinfold.data.image_reading import parse_background

if TYPE_CHECKING:
    from kinfold.training.config.settings import RunConfig, ScheduleConfig

MAX_WORKERS = 1024  # a machine that starts more reading processes stands still
MAX_DIM = 1 << 20  # no network with a wider embedding fits into memory

# Closed intervals; None is unbounded.
_RANGES: dict[str, tuple[int, int | None]] = {
    "seed": (0, (1 << 63) - 1),
    "data.split_seed": (0, None),
    "data.fold": (0, None),
    "data.workers": (0, MAX_WORKERS),
    "data.short_side": (1, None),
    "data.size": (8, 4096),
    "lora.rank": (1, None),
    "lora.dropout": (0, 1),
    "model.dim": (1, MAX_DIM),
    "memory.size": (1, None),
    "memory.start": (0, None),
    "memory.weight": (0, None),
    "optimizer.lr": (0, None),
    "optimizer.head_lr": (0, None),
    "optimizer.loss_lr": (0, None),
    "optimizer.layer_decay": (0, 1),
    "optimizer.proxy_factor": (0, None),
    "optimizer.weight_decay": (0, None),
    "optimizer.momentum": (0, None),
    "schedule.warmup": (0, None),
    "schedule.every": (1, None),
    "schedule.at": (0, None),
    "schedule.factor": (0, None),
    "schedule.floor": (0, None),
    "training.steps": (0, None),
    "training.epochs": (1, None),
    "training.micro_batch": (1, None),
    "training.head_only": (0, None),
    "training.nested_dims": (1, None),
    "training.start_share": (0, 1),
    "model.init_shrinkage": (0, 1),
    "training.log_every": (1, None),
    "training.save_seconds": (0, None),
    "training.save_every": (1, None),
    "evaluation.every": (1, None),
    "evaluation.patience": (1, None),
    "evaluation.patience_after": (0, 1),
    "evaluation.batch_size": (1, None),
}
_POSITIVE = ("optimizer.clip", "optimizer.layer_decay", "lora.alpha", "model.init_length", "mixup.alpha")
_BELOW_ONE = ("optimizer.momentum", "data.validation", "lora.dropout")
# Settings of a schedule, and the schedules that use them.
_SCHEDULE_USERS = {
    "every": ("step",),
    "at": ("milestones",),
    "factor": ("step", "milestones"),
    "floor": ("cosine", "linear"),
}


def validate_config(config: "RunConfig") -> None:
    """Raise a ValueError for a setting out of range, or one that the others would leave without effect."""
    _check_finite(config, "")
    _check_ranges(config)
    training, evaluation, optimizer = config.training, config.evaluation, config.optimizer
    if (training.steps is None) == (training.epochs is None):
        raise ValueError("[training] needs steps or epochs, and not both")
    try:
        parse_background(config.data.background)
    except ValueError as error:
        raise ValueError(f"data.background: {error}") from None
    if config.mixup is not None and training.micro_batch is not None:
        raise ValueError(
            "mixup mixes items of the whole batch, and micro_batch passes only a part of it to the network: leave one "
            "out"
        )
    _check_schedule(config.schedule)
    if optimizer.name in ("adam", "adamw") and optimizer.momentum != type(optimizer).momentum:
        raise ValueError(
            f"optimizer.momentum={optimizer.momentum:g} belongs to sgd and rmsprop, and {optimizer.name} would ignore "
            "it; leave it out"
        )
    if config.model.init_shrinkage is not None and config.model.init in ("random", "pca"):
        raise ValueError(
            f"model.init_shrinkage belongs to whitening and LDA, and model.init = {config.model.init!r} would ignore "
            "it; leave it out"
        )
    if evaluation.selection != "last" and evaluation.metric not in evaluation.metrics:
        raise ValueError(
            f"evaluation.metric {evaluation.metric!r} selects, but is not among evaluation.metrics "
            f"({', '.join(evaluation.metrics)}); add it there"
        )


def _check_finite(value: Any, name: str) -> None:
    """Refuse NaN everywhere, and infinity in all settings but the options of a loss, a miner or a sampler."""
    if is_dataclass(value):
        for entry in fields(value):
            if entry.name == "options" and name != "data":  # keys of the table itself
                _check_nan(getattr(value, entry.name), name)
            else:
                _check_finite(getattr(value, entry.name), f"{name}.{entry.name}" if name else entry.name)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    else:
        _check_nan(value, name)


def _check_nan(value: Any, name: str) -> None:
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{name} is NaN; give a number")
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, inner in entries:
        _check_nan(inner, f"{name}.{key}")


def _check_ranges(config: "RunConfig") -> None:
    for name, (low, high) in _RANGES.items():
        value = _look_up(config, name)
        for number in value if isinstance(value, list) else [value]:
            if number is None:
                continue
            if number < low:
                raise ValueError(f"{name} must be at least {low}, got {number}")
            if high is not None and number > high:
                raise ValueError(f"{name} must be at most {high:,}, got {number:,}")
    for name in _POSITIVE:
        if (number := _look_up(config, name)) is not None and number <= 0:
            raise ValueError(f"{name} must be greater than 0, got {number}")
    for name in _BELOW_ONE:
        if (number := _look_up(config, name)) is not None and not 0 <= number < 1:
            raise ValueError(f"{name} must be in [0, 1), got {number}")


def _look_up(config: "RunConfig", name: str) -> Any:
    """Return the setting of a dotted name; None where its table is left out."""
    value: Any = config
    for key in name.split("."):
        value = getattr(value, key, None)
    return value


def _check_schedule(schedule: "ScheduleConfig") -> None:
    default = type(schedule)()
    for setting, users in _SCHEDULE_USERS.items():
        value = getattr(schedule, setting)
        if schedule.name not in users and value != getattr(default, setting):
            raise ValueError(
                f"schedule.{setting}={value!r} belongs to {' and '.join(users)}, and {schedule.name} would ignore it; "
                "leave it out"
            )
