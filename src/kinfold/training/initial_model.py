"""The network before its first step: new, from a weight file, or from an earlier run; fitted to the training items."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kinfold.models import Embedder, initialize
from kinfold.models.backbone import Backbone
from kinfold.models.precomputed import PrecomputedFeatures
from kinfold.models.weight_files import digest_weights
from kinfold.training.components import build_model
from kinfold.training.config.parsing import to_tables
from kinfold.training.config.settings import ModelConfig, RunConfig

if TYPE_CHECKING:
    from kinfold.training.run import Run

# settings of [model] that describe the network; the others say how it starts
_ARCHITECTURE = ("backbone", "standardize", "dim", "head", "pool", "batch_norm", "backbone_options", "head_options")
_MAX_SHOWN = 3  # weights that an error names


def create_initial_model(config: RunConfig, backbone: Backbone | None = None) -> tuple[Embedder, dict[str, Any] | None]:
    """Build the network with its first weights.

    Args:
        config: With every "auto" resolved.
        backbone: The backbone, where it was passed in Python.

    Returns:
        The network, and what was taken of the run that model.weights names (None where it names none).

    Raises:
        ValueError: The weights are missing or do not fit.
    """
    if not names_run(config.model.weights):
        return build_model(config, backbone), None
    model = create_architecture(config, backbone)
    return model, _load_run_weights(model, str(config.model.weights))


def create_architecture(config: RunConfig, backbone: Backbone | None = None) -> Embedder:
    """Build the network without reading weights."""
    return build_model(replace(config, model=replace(config.model, weights=None)), backbone)


def fit_initial_model(
    model: Embedder, config: ModelConfig, features: Callable[[], Tensor], labels: Tensor, keep: Sequence[str] = ()
) -> None:
    """Standardize the features and set the head to a map computed from them, where the configuration asks for it.

    Args:
        model: As `create_initial_model` returns it; changed in place.
        config: With every "auto" resolved.
        features: Computes `model.features` of all training items, (N, width); called only where it is needed.
        labels: The class of every training item, (N,).
        keep: Parts, "backbone" or "head", that came from a run and stay as they are.

    Warns:
        UserWarning: There are too few images to compute a head from, which keeps its random weights. On rows of
            features, where there is only the head to train, that is an error.
    """
    standardizes = config.standardize and "backbone" not in keep
    initializes_head = config.init != "random" and "head" not in keep
    is_image_network = not isinstance(model.backbone, PrecomputedFeatures)
    if initializes_head and is_image_network and len(labels) <= config.dim:
        initializes_head = False
        warnings.warn(
            f"model.init = {config.init!r} needs more than {config.dim} training images for model.dim = {config.dim}, "
            f"and there are {len(labels)}: the head starts with random weights",
            stacklevel=2,
        )
    if not standardizes and not initializes_head:
        return
    rows = features()
    if standardizes:
        assert isinstance(model.backbone, PrecomputedFeatures)  # nothing else takes the option
        rows = model.backbone.standardize(rows)
    if initializes_head:
        how: Any = config.init  # "auto" is resolved
        initialize(model.head, rows, how, config.init_length, labels=labels, shrinkage=config.init_shrinkage)


def names_run(weights: str | None) -> bool:
    """Return whether model.weights is the folder of a run rather than a weight file."""
    return weights is not None and Path(weights).is_dir()


def inherit_model(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Fill [model] with the settings of the run that model.weights names.

    Args:
        tables: The tables of a recipe; returned as they are where model.weights is not the folder of a run.

    Returns:
        The tables with a complete [model]. Settings of the recipe win.
    """
    model = tables.get("model")
    weights = model.get("weights") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(weights, str) or not names_run(weights):
        return {**tables}
    config = _open_run(weights).config
    source = to_tables(config.model)
    explicit = {key: value for key, value in model.items() if not (key == "backbone" and value == "auto")}
    inherited = {key: source[key] for key in _ARCHITECTURE if key in source}
    for part in ("backbone", "head"):
        if explicit.get(part, inherited[part]) != inherited[part]:
            inherited.pop(f"{part}_options", None)  # those of another network
    if inherited["backbone"] == "features":
        inherited.pop("backbone_options", None)  # the width depends on the data
    adapters = {} if config.lora is None or "lora" in tables else {"lora": to_tables(config.lora)}
    return {**tables, **adapters, "model": {**inherited, **explicit}}


def _load_run_weights(model: Embedder, folder: str) -> dict[str, Any]:
    """Load backbone and head of a run, or the backbone alone where the head has another shape.

    Args:
        model: The new network.
        folder: The folder of the run; its selected weights are taken, or the newest where it is not finished.

    Returns:
        What was taken, for environment.json: run, step, sha256 of the weights, parts.

    Raises:
        ValueError: The backbone does not fit, or nothing fits.
    """
    run = _open_run(folder)
    source, weights = run.config.model, run.model().state_dict()
    loaded = {}
    for part in ("backbone", "head"):
        part_weights = _select_part(weights, part)
        differences = _find_differences(part_weights, _select_part(model.state_dict(), part))
        if not differences:
            loaded[part] = part_weights
        elif part == "backbone":
            raise ValueError(
                f"the backbone of the run {folder} (model.backbone = {source.backbone!r}) does not fit: "
                f"{'; '.join(differences)}. Use its backbone and its model.backbone_options, or start from another run"
            )
    if "head" not in loaded:
        head = f"model.head = {source.head!r}, model.dim = {source.dim}"
        if not loaded["backbone"]:
            raise ValueError(
                f"nothing of the run {folder} fits: its backbone has no weights, and its head ({head}) has another "
                "shape"
            )
        warnings.warn(
            f"the head of the run {folder} ({head}) has another shape: only the backbone starts from that run",
            stacklevel=2,
        )
    for part, part_weights in loaded.items():
        getattr(model, part).load_state_dict(part_weights)
    sha256 = digest_weights({f"{part}.{key}": value for part, each in loaded.items() for key, value in each.items()})
    return {"run": folder, "step": run.weights_step, "sha256": sha256, "parts": [*loaded]}


def _open_run(folder: str) -> "Run":
    from kinfold.training.run import Run  # which imports this module

    return Run.open(folder)


def _select_part(weights: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    prefix = f"{part}."
    return {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}


def _find_differences(saved: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Describe the first few weights that one side lacks or that have another shape."""
    shapes = [{key: tuple(value.shape) for key, value in side.items()} for side in (saved, expected)]
    keys = [key for key in dict.fromkeys((*shapes[0], *shapes[1])) if shapes[0].get(key) != shapes[1].get(key)]
    more = [f"and {len(keys) - _MAX_SHOWN} more"] if len(keys) > _MAX_SHOWN else []
    return [f"{key} is {shapes[0].get(key)} there and {shapes[1].get(key)} here" for key in keys[:_MAX_SHOWN]] + more
