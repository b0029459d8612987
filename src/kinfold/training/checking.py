"""Every name and option of a configuration, checked before any data is read."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kinfold import registry
from kinfold.data import create_pipeline
from kinfold.metrics.lookup import find_metric
from kinfold.models.creation import LIBRARIES, PUBLISHED
from kinfold.registry.options import check_options
from kinfold.training import mixup, parts, warm_start
from kinfold.training.config.settings import RunConfig
from kinfold.training.environment import choose_device
from kinfold.training.objective import Objective

CLASSES = 16  # that losses with one vector per class are built for
LARGEST_BATCH = 1 << 16  # that a sampler is built for


def check(given: RunConfig) -> None:
    """Check every named part: data set, pipeline, backbone, head, weights, loss, miner, sampler, metrics, device.

    Loss, miner and sampler are built and the loss is computed once; the rest is compared with what it takes. Optimizer
    and schedule are checked when a recipe is parsed.

    Raises:
        ValueError: For the first name, option or value that is wrong, with the nearest valid name.
    """
    _check_data(given)
    _check_model(given)
    for name in (*given.evaluation.metrics, *given.evaluation.diagnostics):
        find_metric(name)  # raises with the nearest name
    choose_device(given.training.device)
    try_objective(parts.build_objective(given, CLASSES), given.model.dim, torch.device("cpu"))
    _check_sampler(given)


def try_objective(objective: Objective, dim: int, device: torch.device) -> None:
    """Compute the loss of four rows, so that a loss and a miner that do not go together raise their error now."""
    embeddings = torch.randn(4, dim, generator=torch.Generator().manual_seed(0)).to(device, torch.float32)
    with torch.no_grad():
        objective.loss(embeddings, torch.tensor([0, 0, 1, 1], device=device))


def _check_data(given: RunConfig) -> None:
    settings = given.data
    reader: Callable[..., Any] = registry.resolve("datasets", settings.name)
    # the root may also come from the environment, which the reader itself looks at
    root = {"root": settings.root or "."} if "root" in inspect.signature(reader).parameters else {}
    check_options(settings.name, reader, {**root, **settings.options}, registry.suggest)
    if settings.pipeline != "auto":
        create_pipeline(settings.pipeline)


def _check_model(given: RunConfig) -> None:
    settings = given.model
    head: Callable[..., Any] = registry.resolve("heads", settings.head)
    filled: Mapping[str, Any] = {"width": settings.dim, "dim": settings.dim, **settings.head_options}
    check_options(settings.head, head, filled, registry.suggest)
    weights = settings.weights
    if weights is not None and weights not in PUBLISHED and not Path(weights).exists():
        raise ValueError(
            f"model.weights: there is no weight file and no run folder {weights}; give the path of one, or one of "
            f"{', '.join(PUBLISHED)}{registry.suggest(weights, PUBLISHED)}"
        )
    if warm_start.names_run(weights):
        warm_start.inherit_model({"model": {"weights": weights}})  # raises where the folder is not that of a run
    if settings.backbone == "auto":
        return
    library, slash, model = settings.backbone.partition("/")
    name, options = settings.backbone, dict(settings.backbone_options)
    if slash and library in LIBRARIES:
        name, options = library, {**options, "model": model}
    backbone: Callable[..., Any] = registry.resolve("backbones", name)
    known = inspect.signature(backbone).parameters
    if weights in PUBLISHED and "pretrained" not in known:
        raise ValueError(f"no library brings weights of {name!r} along; give the path of a local file as model.weights")
    if "width" in known:
        options.setdefault("width", settings.dim)  # of the data
    check_options(name, backbone, options, registry.suggest)
    if given.mixup is not None and isinstance(getattr(backbone, "stages", None), tuple):
        mixup.check_layers(given.mixup, backbone)  # type: ignore[arg-type]  # a class has the names as well


def _check_sampler(given: RunConfig) -> None:
    """Build it over labels that have room for a batch; what depends on the real labels is checked with them."""
    name, options = given.sampler.name, given.sampler.options
    check_options(name, registry.resolve("samplers", name), {"labels": [], **options}, registry.suggest)
    size, per_class = options.get("batch_size", 1), options.get("per_class", 1)
    if 1 <= size <= LARGEST_BATCH and 1 <= per_class <= LARGEST_BATCH:
        labels = torch.arange(size).repeat_interleave(max(2, min(per_class, size)))
        parts.build_sampler(given, labels)
