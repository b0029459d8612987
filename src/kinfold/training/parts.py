"""From a configuration to the things that train: data, model, loss, sampler."""

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinfold import losses, miners, models, pairs, registry, samplers
from kinfold.data import Dataset, Pipeline, Rows, cache_images, create_pipeline, keep_readable, load
from kinfold.data.folds import assign_fold
from kinfold.losses import Loss, Mined
from kinfold.models import Embedder
from kinfold.models.ensemble import Ensemble
from kinfold.seeding import derive_generator
from kinfold.training.config.settings import DataConfig, NamedConfig, RunConfig
from kinfold.training.defaults import compares_raw_vectors
from kinfold.training.ensemble_objective import EnsembleObjective
from kinfold.training.objective import Objective

USUAL_SHARE = 0.2  # of the training classes, held out for selection
_CLASSES, _LOSS, _MINER = 101, 102, 103  # what a generator is derived for


@dataclass(frozen=True)
class Splits:
    """Three sets of classes that have nothing in common; labels are counted from 0 in each."""

    train: Dataset
    validation: Dataset | None
    test: Dataset | None


def load_dataset(settings: DataConfig) -> Dataset:
    """Read what the configuration names, each item in the split that its protocol gives it."""
    return assign_splits(load(settings.name, settings.root, **settings.options), settings)


def assign_splits(found: Dataset, settings: DataConfig) -> Dataset:
    """The items that a run may see, each in the split that the protocol gives it."""
    found = assign_fold(found, settings.protocol, settings.fold)
    if settings.test == "withheld":
        found = found.where(found.split != "test", relabel=True)
    if settings.errors == "skip" and not isinstance(found.items, Rows):
        # once and for all, so that every rank and every epoch sees the same items
        found, _ = keep_readable(found, errors="skip")
    return found


def split_classes(data: Dataset, settings: DataConfig) -> Splits:
    """Train, validation and test items; a share of the training classes is held out where there is no validation."""
    present = {word for word in ("train", "validation", "test") if (data.split == word).any()}
    if "train" not in present:
        raise ValueError(f"{data.name} has no item in the split 'train'; it has {', '.join(sorted(present))}")
    train = data.subset("train")
    test = data.subset("test") if "test" in present else None
    if "validation" in present:
        return Splits(train, data.subset("validation"), test)
    count = len(train.classes)
    held = round((settings.validation or 0.0) * count)
    if not settings.validation:
        return Splits(train, None, test)
    if held < 1 or count - held < 2:
        raise ValueError(
            f"{settings.validation:g} of {count} training classes is {held} for validation and {count - held} for "
            "training; choose another data.validation, or 0 with evaluation.selection = 'last' and without "
            "evaluation.patience"
        )
    chosen = torch.randperm(count, generator=derive_generator(settings.split_seed, _CLASSES))[:held]
    mask = torch.isin(train.labels, chosen)
    return Splits(train.where(~mask, relabel=True), train.where(mask, relabel=True), test)


def resolve_config(given: RunConfig, data: Dataset) -> RunConfig:
    """The same with every "auto" replaced by what it stands for with this data."""
    shape = getattr(data.items[0], "shape", None)
    rows = isinstance(data.items, Rows) and shape is not None and len(shape) == 1
    model, settings, evaluation = given.model, given.data, given.evaluation
    if model.backbone == "auto":
        small = shape is not None and len(shape) == 2 and max(shape) <= 64
        if not rows and not small:
            raise ValueError(
                "model.backbone must be chosen for images such as these: efficientnet-lite0 with weights = 'imagenet' "
                f"is a good start on a CPU; there are {', '.join(registry.names('backbones'))}"
            )
        model = replace(model, backbone="features" if rows else "conv4")
    if rows != (model.backbone == "features"):
        kind = "rows of features" if rows else "images"
        raise ValueError(f"{data.name} holds {kind}, which the backbone {model.backbone!r} does not take")
    if model.backbone == "features" and "width" not in model.backbone_options and shape is not None:
        model = replace(model, backbone_options={**model.backbone_options, "width": shape[0]})
    if rows and model.head == "linear" and shape is not None:
        # a linear map has no more dimensions to give than it gets; the estimator does the same
        model = replace(model, dim=min(model.dim, shape[0]))
    if model.init == "auto":
        fits = rows and model.head == "linear"
        model = replace(model, init="half-whiten" if fits else "random")
    if model.standardize and not rows:
        raise ValueError("model.standardize is for rows of features, and these are images; leave it out")
    if model.standardize and model.head == "identity":
        model = replace(model, standardize=False)  # the space of the features as they are
    if settings.root is not None:
        settings = replace(settings, root=str(Path(settings.root).resolve()))  # resumed from anywhere
    if model.weights is not None and Path(model.weights).exists():
        model = replace(model, weights=str(Path(model.weights).resolve()))
    if settings.validation is None:
        settings = replace(settings, validation=USUAL_SHARE if evaluation.selection == "validation" else 0.0)
    if evaluation.distance == "auto":
        raw = compares_raw_vectors(given.loss.name)
        evaluation = replace(evaluation, distance="euclidean" if raw else "cosine")
    return replace(given, model=model, data=settings, evaluation=evaluation)


def build_model(given: RunConfig) -> Embedder:
    settings = given.model
    options = settings.backbone_options
    if settings.standardize:
        options = {**options, "standardize": True}
    return models.create(
        settings.backbone,
        settings.dim,
        settings.head,
        settings.pool,
        settings.weights,
        settings.batch_norm,
        given.seed,
        options,
        settings.head_options,
    )


def build_pipeline(settings: DataConfig, embedder: Embedder) -> Pipeline | None:
    """How images are made ready: by the name given, or as the backbone expects it; None for features."""
    if settings.pipeline != "auto":
        return replace(create_pipeline(settings.pipeline), background=settings.background)
    if embedder.backbone.mode is None:
        return None
    if embedder.backbone.pipeline is None:
        raise ValueError("this backbone does not say how images are made ready for it; give data.pipeline")
    return replace(create_pipeline(embedder.backbone.pipeline), background=settings.background)


def cache_in_memory(data: Dataset, settings: DataConfig, images: Pipeline | None) -> Dataset:
    """With decoded images where the configuration asks for it."""
    if not settings.cache or images is None or isinstance(data.items, Rows):
        return data
    return cache_images(
        data, settings.short_side, images.mode, workers=max(1, settings.workers), background=images.background
    )[0]


def build_objective(given: RunConfig, classes: int, embedder: Embedder | None = None) -> Objective:
    """The loss with its miner and memory; what depends on the data (number of classes, width) is filled in.

    An embedder whose head is an ensemble gets a loss for each part besides.
    """
    found = _build_loss(given, classes, given.model.dim)
    if embedder is not None and isinstance(embedder.head, Ensemble):
        if given.memory is not None:
            raise ValueError(
                f"the parts of head = {given.model.head!r} learn from some items of a batch each, which a memory of "
                "whole embeddings does not hold: leave [memory] out, or take another head"
            )
        ensemble = embedder.head
        each = [_build_loss(given, classes, ensemble.part_dim, number) for number in range(1, ensemble.parts + 1)]
        return EnsembleObjective(ensemble, found, each)
    if given.memory is None:
        return Objective(found)
    return Objective(found, pairs.CrossBatchMemory(given.memory.size), given.memory.start, given.memory.weight)


def _build_loss(given: RunConfig, classes: int, dim: int, *part: int) -> Loss | Mined:
    """For embeddings of this width; each part of an ensemble draws by its own number."""
    loss = losses.create(given.loss.name, **_fill_options("losses", given.loss, classes, dim, given.seed, _LOSS, *part))
    if given.miner is None:
        return loss
    return Mined(
        loss,
        miners.create(
            given.miner.name, **_fill_options("miners", given.miner, classes, dim, given.seed, _MINER, *part)
        ),
    )


def build_sampler(given: RunConfig, labels: Tensor) -> samplers.Sampler:
    options = {"seed": given.seed, **given.sampler.options}
    found = samplers.create(given.sampler.name, labels, **options)
    per_class = getattr(found, "per_class", None)
    if per_class is not None and found.batch_size < 2 * per_class:
        raise ValueError(
            f"sampler.per_class={per_class} fills a batch of {found.batch_size} with one class: nothing to push "
            f"apart; use at most {found.batch_size // 2}"
        )
    return found


def _fill_options(kind: str, choice: NamedConfig, classes: int, dim: int, *numbers: int) -> dict[str, Any]:
    known = inspect.signature(registry.resolve(kind, choice.name)).parameters
    options = dict(choice.options)
    if "num_classes" in known:
        required = known["num_classes"].default is inspect.Parameter.empty
        if options.get("num_classes", "auto" if required else None) == "auto":
            options["num_classes"] = classes
    if "dim" in known:
        options.setdefault("dim", dim)
    if "generator" in known:
        options["generator"] = derive_generator(*numbers)
    return options
