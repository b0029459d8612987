"""Losses: embeddings and labels in, a differentiable value out.

`create` makes any registered loss. Each loss is in the module of its name: `kinfold.losses.ranked_list` has the class
`RankedList` and the function `ranked_list` on distances and masks. The classes are also attributes of this package,
imported on first use: `kinfold.losses.RankedList`. `Loss`, `ScoredPairs` and `Terms` are for writing a new loss,
`ProxyLoss` and `TargetLogits` for one with class vectors.
"""

import importlib
import inspect
from typing import Any

from kinfold import registry
from kinfold.losses.checks import check_initialized
from kinfold.losses.class_weights import ClassWeighted, balance_classes
from kinfold.losses.compiled_tiles import compile, compile_seconds  # noqa: A004 - kinfold.losses.compile, as torch.compile
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.mined import Mined
from kinfold.losses.nested import Nested
from kinfold.losses.parameter_groups import parameter_groups
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.row_updates import update_rows
from kinfold.losses.target_logits import TargetLogits
from kinfold.losses.terms import ScoredPairs, Terms

__all__ = [
    "ClassWeighted",
    "Loss",
    "Mined",
    "Nested",
    "ProxyLoss",
    "Reduction",
    "ScoredPairs",
    "TargetLogits",
    "Terms",
    "balance_classes",
    "compile",
    "compile_seconds",
    "create",
    "parameter_groups",
    "update_rows",
]


def create(name: str, **options: Any) -> Loss:
    """Create a loss by its registered name.

    Args:
        name: A name of `kinfold.list("losses")`.
        **options: Constructor arguments of the loss; `num_classes` and `dim` for a loss with proxies.

    Raises:
        ValueError: The name or an option is unknown; the message suggests the nearest one.

    Examples:
        >>> create("multi-similarity", threshold=0.6).threshold
        0.6
    """
    target = registry.resolve("losses", name)
    _check_distance(name, target, options)
    is_other_class = isinstance(target, type) and not issubclass(target, Loss)
    loss = None if is_other_class else registry.create("losses", name, **options)
    if not isinstance(loss, Loss):
        actual = target.__name__ if loss is None else type(loss).__name__
        raise ValueError(
            f"{name!r} is registered as a loss, but {actual} is no kinfold.losses.Loss; derive it from that"
        )
    check_initialized(loss, name)
    return loss


def _check_distance(name: str, target: Any, options: dict[str, Any]) -> None:
    """Raise ValueError that says why for a distance of a loss that takes none."""
    parameters = inspect.signature(target).parameters
    if "distance" not in options or "distance" in parameters:
        return
    reason = getattr(target, "fixed_measure", None)
    if "pair_loss" in parameters:
        reason = 'it is that of its pair loss: pair_loss=kinfold.losses.create("binomial", distance=...)'
    if reason is not None:
        others = registry.names("losses")
        takers = [
            other for other in others if "distance" in inspect.signature(registry.resolve("losses", other)).parameters
        ]
        raise ValueError(f"{name!r} takes no distance: {reason}. These take one: {', '.join(takers)}")


def __getattr__(name: str) -> Any:
    """Import the class of a registered loss of this package."""
    module = _find_modules().get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_find_modules()})


def _find_modules() -> dict[str, str]:
    """Module of the class of each registered loss of this package."""
    targets = (target.split(":") for target in registry.targets("losses").values())
    return {attribute: module for module, attribute in targets if module.startswith(f"{__name__}.")}
