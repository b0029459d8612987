"""Names `pml/...`: classes of pytorch-metric-learning wherever kinfold takes the name of a loss, miner or sampler.

The options are those of the class, under its names, with three differences: `dim` is its `embedding_size`; `distance`,
`reducer` and regularizers are names of classes, which are created with their defaults; and `generator` is where initial
weights and draws come from.
"""

import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import torch

from kinfold.compat.pml_import import PMLLoss, PMLMiner, PMLSampler
from kinfold.devices import keep_global_generators, seed_global_generators
from kinfold.optional import import_optional
from kinfold.registry import suggest

_PACKAGE = "pytorch_metric_learning"
_DIMENSIONS = ("embedding_size", "descriptors_dim")  # what `dim` is called there
# option: module whose classes it names
_OBJECTS = {
    "distance": "distances",
    "reducer": "reducers",
    "embedding_regularizer": "regularizers",
    "weight_regularizer": "regularizers",
}
# set by classes for their base class, or functions, which a recipe cannot hold
_HIDDEN = {"mat_based_loss", "weight_init_func", "collect_stats", "hard_distance", "label_comparison_fn"}
# base classes, and classes that take no labels: proxies of clusters, pairs of views, batches of ready triplets
_LEFT_OUT = {
    "BaseMetricLossFunction",
    "BaseMiner",
    "EmbeddingsAlreadyPackagedAsTriplets",
    "GenericPairLoss",
    "ManifoldLoss",
    "VICRegLoss",
}


@cache
def find_loss(name: str) -> Callable[..., PMLLoss]:
    """Return a function that creates a loss of pytorch-metric-learning, with its options as arguments.

    Args:
        name: Name of the class, such as "CircleLoss".

    Raises:
        ValueError: There is no such class, or it is no single loss.

    Examples:
        >>> find_loss("CircleLoss")(m=0.3).loss.m
        0.3
    """
    losses = _import("losses")
    chosen = _find_class(losses, name, losses.BaseMetricLossFunction, "loss")
    return _make_factory(chosen, PMLLoss)


@cache
def find_miner(name: str) -> Callable[..., PMLMiner]:
    """Return a function that creates a miner of pytorch-metric-learning, with its options as arguments.

    Args:
        name: Name of the class, such as "BatchHardMiner".

    Raises:
        ValueError: There is no such class.

    Examples:
        >>> find_miner("TripletMarginMiner")(margin=0.1).miner.margin
        0.1
    """
    miners = _import("miners")
    return _make_factory(_find_class(miners, name, miners.BaseMiner, "miner"), PMLMiner)


def find_sampler(name: str) -> type[PMLSampler]:
    """Return the adapter of a sampler of pytorch-metric-learning.

    Args:
        name: "MPerClassSampler", the only one that fits.

    Raises:
        ValueError: Another name.
    """
    if name != "MPerClassSampler":
        raise ValueError(f"sampler 'pml/{name}' not found: only pml/MPerClassSampler fits, which 'spc' is like")
    return PMLSampler


def _import(module: str) -> ModuleType:
    imported: ModuleType = import_optional(f"{_PACKAGE}.{module}", "pytorch-metric-learning", "pml", "a name pml/...")
    return imported


def _find_class(module: ModuleType, name: str, base: type, noun: str) -> type:
    classes = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and key not in _LEFT_OUT
    }
    if name not in classes:
        hint = suggest(name, classes)
        raise ValueError(f"{noun} 'pml/{name}' not found{hint}; there are {', '.join(sorted(classes))}")
    return classes[name]


def _make_factory(chosen: type, adapter: type) -> Callable[..., Any]:
    """Return a function whose signature states the options of a class, so that they can be checked."""
    parameters = _list_parameters(chosen)
    dimension = next((name for name in _DIMENSIONS if name in parameters), None)

    def create(**options: Any) -> Any:
        generator = options.pop("generator", None)
        if dimension is not None and "dim" in options:
            options[dimension] = options.pop("dim")
        arguments = {key: _create_object(key, value) for key, value in options.items()}
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        cpu = torch.device("cpu")
        with keep_global_generators(cpu):  # it draws initial class vectors from the global generator
            seed_global_generators(generator.initial_seed(), cpu)
            try:
                inner = chosen(**arguments)
            except (TypeError, AssertionError) as error:  # an option that the class sets itself, or an invalid value
                raise ValueError(f"pml/{chosen.__name__} cannot be created: {error or 'invalid options'}") from error
            return adapter(inner, generator=generator)

    listed = [
        inspect.Parameter(
            "dim" if name == dimension else name,
            inspect.Parameter.KEYWORD_ONLY,
            default=parameter.default,
            annotation=_annotate(name, parameter),
        )
        for name, parameter in parameters.items()
    ]
    listed.append(
        inspect.Parameter("generator", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=torch.Generator | None)
    )
    create.__name__ = create.__qualname__ = chosen.__name__
    create.__doc__ = f"{chosen.__name__} of pytorch-metric-learning."
    create.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    create.__annotations__ = {parameter.name: parameter.annotation for parameter in listed}
    return create


def _list_parameters(chosen: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor and of those that it passes further arguments to."""
    listed: dict[str, inspect.Parameter] = {}
    for cls in inspect.getmro(chosen):
        if "__init__" not in vars(cls) or cls.__module__.partition(".")[0] != _PACKAGE:
            continue
        parameters = inspect.signature(vars(cls)["__init__"]).parameters
        for name, parameter in [*parameters.items()][1:]:
            is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if is_named and name not in _HIDDEN:
                listed.setdefault(name, parameter)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            break
    return listed


def _annotate(name: str, parameter: inspect.Parameter) -> Any:
    """Return the type of an option by its default, as the classes state none."""
    if name in _OBJECTS:
        return str | None
    default = parameter.default
    if isinstance(default, bool):
        return bool
    if isinstance(default, int | float):
        return float
    return str | int | float if isinstance(default, str) else Any


def _create_object(option: str, value: Any) -> Any:
    if option not in _OBJECTS or not isinstance(value, str):
        return value
    classes = {key: cls for key, cls in vars(_import(_OBJECTS[option])).items() if isinstance(cls, type)}
    if value not in classes:
        raise ValueError(f"{option} = {value!r} not found{suggest(value, classes)}; there are {', '.join(classes)}")
    try:
        return classes[value]()
    except TypeError as error:
        raise ValueError(
            f"{option} = {value!r} needs arguments ({error}): write a plugin that registers a function which returns "
            "kinfold.compat.PMLLoss(...)"
        ) from None
