"""Check every name and option of a configuration before any data is read."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kinfold import registry
from kinfold.data import create_pipeline
from kinfold.metrics.graded import check_metric
from kinfold.models.creation import LIBRARIES, PUBLISHED
from kinfold.registry.options import check_options
from kinfold.training import initial_model
from kinfold.training.components import build_objective, build_sampler, try_objective
from kinfold.training.config.settings import PASSED, RunConfig
from kinfold.training.environment import choose_device
from kinfold.training.loop import mixup
from kinfold.training.loop.optimizers import check_loss_lr

_NUM_CLASSES = 16  # of the losses with proxies that are built for the check
_MAX_BATCH = 1 << 16  # of the sampler that is built for the check


def check(config: RunConfig) -> None:
    """Check dataset, pipeline, backbone, head, weights, loss, miner, sampler, metrics and device.

    Loss, miner and sampler are built, and the loss is computed once. Optimizer and schedule are checked when a recipe
    is parsed.

    Raises:
        ValueError: A name, an option or a value is wrong; the message has the nearest valid name.
    """
    _check_data(config)
    _check_model(config)
    for name in (*config.evaluation.metrics, *config.evaluation.diagnostics):
        check_metric(name)  # raises with the nearest name
    choose_device(config.training.device)
    objective = build_objective(config, _NUM_CLASSES)
    try_objective(objective, config.model.dim, torch.device("cpu"))
    if config.training.steps != 0:
        check_loss_lr(objective, config.optimizer)
    _check_sampler(config)


def _check_data(config: RunConfig) -> None:
    data = config.data
    if data.pipeline != "auto":
        create_pipeline(data.pipeline)
    if data.name == PASSED:
        return
    reader: Callable[..., Any] = registry.resolve("datasets", data.name)
    # the root may also come from the environment, which the reader itself reads
    root = {"root": data.root or "."} if "root" in inspect.signature(reader).parameters else {}
    check_options(data.name, reader, {**root, **data.options}, registry.suggest)


def _check_model(config: RunConfig) -> None:
    model = config.model
    head: Callable[..., Any] = registry.resolve("heads", model.head)
    head_options: Mapping[str, Any] = {"width": model.dim, "dim": model.dim, **model.head_options}
    check_options(model.head, head, head_options, registry.suggest)
    weights = model.weights
    if weights is not None and weights not in PUBLISHED and not Path(weights).exists():
        raise ValueError(
            f"model.weights: there is no weight file and no run folder {weights}; give the path of one, or one of "
            f"{', '.join(PUBLISHED)}{registry.suggest(weights, PUBLISHED)}"
        )
    if initial_model.names_run(weights):
        initial_model.inherit_model({"model": {"weights": weights}})  # raises where it is not the folder of a run
    if model.backbone in ("auto", PASSED):
        return
    library, slash, library_model = model.backbone.partition("/")
    name, options = model.backbone, dict(model.backbone_options)
    if slash and library in LIBRARIES:
        name, options = library, {**options, "model": library_model}
    backbone: Callable[..., Any] = registry.resolve("backbones", name)
    parameters = inspect.signature(backbone).parameters
    if weights in PUBLISHED and "pretrained" not in parameters:
        raise ValueError(f"no library provides weights of {name!r}; set model.weights to the path of a local file")
    if "width" in parameters:
        options.setdefault("width", model.dim)  # that of the data
    check_options(name, backbone, options, registry.suggest)
    if config.mixup is not None and isinstance(getattr(backbone, "stages", None), tuple):
        mixup.check_layers(config.mixup, backbone)  # type: ignore[arg-type]  # a class has the stages too


def _check_sampler(config: RunConfig) -> None:
    """Build the sampler over labels that fill a batch; the real labels are checked later."""
    name, options = config.sampler.name, config.sampler.options
    check_options(name, registry.resolve("samplers", name), {"labels": [], **options}, registry.suggest)
    size, per_class = options.get("batch_size", 1), options.get("per_class", 1)
    if 1 <= size <= _MAX_BATCH and 1 <= per_class <= _MAX_BATCH:
        labels = torch.arange(size).repeat_interleave(max(2, min(per_class, size)))
        build_sampler(config, labels)
