"""Network, image pipeline, objective and sampler from their tables of a configuration."""

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kinfold import losses, miners, models, pairs, registry, samplers
from kinfold.data import Pipeline, create_pipeline
from kinfold.data.label_table import LabelTable
from kinfold.data.pipelines import adjust_pipeline
from kinfold.distributed import World
from kinfold.losses import Loss, Mined, Nested, ProxyLoss
from kinfold.models import Embedder
from kinfold.models.backbone import Backbone
from kinfold.models.ensemble import Ensemble
from kinfold.models.lora import add_adapters
from kinfold.seeding import derive_generator
from kinfold.training.config.settings import PASSED, DataConfig, NamedConfig, RunConfig
from kinfold.training.loop.ensemble_objective import EnsembleObjective
from kinfold.training.loop.objective import Objective, get_inner_loss

_LOSS_SEED, _MINER_SEED = 102, 103  # tell the draws of loss and miner from all other draws of a seed


def build_model(config: RunConfig, backbone: Backbone | None = None) -> Embedder:
    """Build the network of [model] with its weights, in the precision and memory format of the run.

    Args:
        config: The configuration of the run.
        backbone: The backbone, where model.backbone is "passed".

    Raises:
        ValueError: A backbone was passed and is not here.
    """
    model = config.model
    if model.backbone == PASSED and backbone is None:
        raise ValueError(
            "this run was trained with a backbone that was passed in Python and is not stored with it; pass the same "
            "module again: kinfold.train(None, FOLDER, resume=True, backbone=...), or kinfold.Run.open(FOLDER, "
            "backbone=...)"
        )
    embedder = models.create(
        model.backbone if backbone is None or model.backbone != PASSED else backbone,
        model.dim,
        model.head,
        model.pool,
        model.weights,
        model.batch_norm,
        config.seed,
        {**model.backbone_options, "standardize": True} if model.standardize else model.backbone_options,
        model.head_options,
    )
    if config.lora is not None:
        lora = config.lora
        add_adapters(embedder.backbone, lora.rank, lora.alpha, lora.dropout, lora.targets, config.seed)
    if model.frozen_stages:
        embedder.freeze_stages(model.frozen_stages)
    if model.memory_format != "auto":
        embedder.set_memory_format(model.memory_format)
    return embedder.double() if config.training.precision == "float64" else embedder


def build_pipeline(config: DataConfig, embedder: Embedder) -> Pipeline | None:
    """Build the image pipeline of [data], by default that of the backbone; None for features.

    Raises:
        ValueError: The backbone has no default pipeline.
    """
    if config.pipeline != "auto":
        pipeline = create_pipeline(config.pipeline)
    elif embedder.backbone.mode is None:
        return None
    else:
        default = embedder.backbone.get_pipeline()
        if default is None:
            raise ValueError(
                "this backbone has no default image pipeline; set data.pipeline, as in --set data.pipeline=study "
                "(ImageNet's mean and deviation), and data.size for another size than 224"
            )
        pipeline = default
    return replace(adjust_pipeline(pipeline, config.size, config.flip), background=config.background)


def build_objective(config: RunConfig, num_classes: int, embedder: Embedder | None = None) -> Objective:
    """Build the loss with its miner and memory.

    Args:
        config: The configuration of the run.
        num_classes: Training classes, for losses with proxies.
        embedder: The network; one whose head is an ensemble gets one more loss for each part.

    Raises:
        ValueError: Loss, miner, memory and head do not fit together.
    """
    loss = _build_nested_loss(config, num_classes)
    memory = config.memory
    if embedder is not None and isinstance(embedder.head, Ensemble):
        if memory is not None:
            raise ValueError(
                f"the parts of head = {config.model.head!r} learn from some items of a batch each, and a memory holds "
                "whole embeddings only: leave [memory] out, or use another head"
            )
        if isinstance(loss, Nested):
            raise ValueError(
                f"the parts of head = {config.model.head!r} are embeddings of their own: leave training.nested_dims "
                "out, or use another head"
            )
        ensemble = embedder.head
        part_classes = ensemble.count_classes(num_classes)
        part_losses = [
            _build_loss(config, part_classes, ensemble.part_dim, number) for number in range(1, ensemble.parts + 1)
        ]
        return EnsembleObjective(ensemble, loss, part_losses)
    if memory is None:
        return Objective(loss)
    return Objective(loss, pairs.CrossBatchMemory(memory.size), memory.start, memory.weight)


def _build_nested_loss(config: RunConfig, num_classes: int) -> Loss | Mined | Nested:
    loss, dims = _build_loss(config, num_classes, config.model.dim), config.training.nested_dims
    if not dims:
        return loss
    if dims[-1] > config.model.dim:
        raise ValueError(f"training.nested_dims = {dims} are prefixes of model.dim = {config.model.dim}; lower them")
    return Nested(loss, dims)


def _build_loss(config: RunConfig, num_classes: int, dim: int, *part: int) -> Loss | Mined:
    """Build the loss for embeddings of a width; each part of an ensemble draws by its own number."""

    def fill(kind: str, named: NamedConfig, number: int) -> dict[str, Any]:
        return _fill_options(kind, named, num_classes, dim, config.seed, number, *part)

    loss = losses.create(config.loss.name, **fill("losses", config.loss, _LOSS_SEED))
    if config.training.compile_loss:
        loss = losses.compile(loss)
    if config.miner is None:
        return loss
    return Mined(loss, miners.create(config.miner.name, **fill("miners", config.miner, _MINER_SEED)))


def _fill_options(kind: str, named: NamedConfig, num_classes: int, dim: int, *seeds: int) -> dict[str, Any]:
    """Add what depends on data and model: number of classes, width and generator."""
    parameters = inspect.signature(registry.resolve(kind, named.name)).parameters
    options = dict(named.options)
    if "num_classes" in parameters:
        required = parameters["num_classes"].default is inspect.Parameter.empty
        if options.get("num_classes", "auto" if required else None) == "auto":
            options["num_classes"] = num_classes
    if "dim" in parameters:
        options.setdefault("dim", dim)
    if "generator" in parameters:
        options["generator"] = derive_generator(*seeds)
    return options


def try_objective(objective: Objective, dim: int, device: torch.device) -> None:
    """Compute the loss of four rows, so that a loss and a miner that do not fit together raise their error now."""
    embeddings = torch.randn(4, dim, generator=torch.Generator().manual_seed(0)).to(device, torch.float32)
    with torch.no_grad():
        if objective.label_table is None:
            objective.loss(embeddings, torch.tensor([0, 0, 1, 1], device=device))
            return
        ids = torch.arange(4, device=device) % len(objective.label_table)
        objective.compute_batch_loss(embeddings, torch.tensor([0, 0, 1, 1], device=device), ids)


def relate_items(objective: Objective, config: RunConfig, table: LabelTable) -> None:
    """Let an objective compare related items instead of classes.

    Args:
        objective: What is minimized; it gets the table.
        config: The configuration, for messages.
        table: Labels of the training items.

    Raises:
        ValueError: The loss, the head or mixup needs one class for each item.
    """
    name, loss = config.loss.name, get_inner_loss(objective.loss)
    column = f"the column of {table.kind} says how much two items are related, and"
    where = f"leave --set data.options.columns.{table.kind} out"
    if isinstance(objective, EnsembleObjective):
        raise ValueError(
            f"{column} the parts of head = {config.model.head!r} need classes: use another head, or {where}"
        )
    if config.mixup is not None:
        raise ValueError(f"{column} that is not known for mixed items: leave [mixup] out, or {where}")
    if loss.proxies is not None or (table.kind == "levels" and not (loss.kind == "pair" or loss.graded)):
        is_of_classes = loss.proxies is not None
        reason = "learns one vector for each class" if is_of_classes else "needs pairs that are related or not"
        raise ValueError(
            f"{column} {name!r} {reason}: use happier, log-ratio, supcon, or a loss of kind 'pair' (contrastive, "
            f"margin, binomial, sigmoid, ...), or {where}"
        )
    if table.kind == "levels" and isinstance(objective.loss, Mined):
        raise ValueError(f"{column} miners select pairs that are related or not: --set miner.name=none, or {where}")
    objective.label_table = table


def shard_objective(objective: Objective, world: World) -> None:
    """Let each process hold the class vectors of a part of the classes.

    Raises:
        ValueError: The loss has no class vectors, or a form in which they cannot be sharded.
    """
    loss = objective.loss
    if isinstance(objective, EnsembleObjective) or not isinstance(loss, ProxyLoss):
        raise ValueError(
            "training.shard_classes needs a loss with class vectors, such as 'arcface', without prefixes "
            "(training.nested_dims) and without a head of several parts; leave it out"
        )
    if world.size > 1:
        loss.shard_classes(world)


def build_sampler(config: RunConfig, labels: Tensor) -> samplers.Sampler:
    """Build the sampler of [sampler] over the labels of the training items.

    Raises:
        ValueError: A batch would hold a single class.
    """
    sampler = samplers.create(config.sampler.name, labels, **{"seed": config.seed, **config.sampler.options})
    per_class = getattr(sampler, "per_class", None)
    if per_class is not None and sampler.batch_size < 2 * per_class:
        raise ValueError(
            f"sampler.per_class={per_class} fills a batch of {sampler.batch_size} with one class, so that there are no "
            f"negatives; use at most {sampler.batch_size // 2}"
        )
    return sampler
