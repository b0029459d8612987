"""A training that starts from the weights of an earlier run."""

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kinfold.models import Embedder
from kinfold.training.config import parsing

if TYPE_CHECKING:
    from kinfold.training.run import Run

# settings of [model] that describe the network; the rest says how it begins
ARCHITECTURE = ("backbone", "standardize", "dim", "head", "pool", "batch_norm", "backbone_options", "head_options")
SHOWN = 3  # weights that an error names


def names_run(weights: str | None) -> bool:
    """Whether model.weights names the folder of a run rather than a file of weights."""
    return weights is not None and Path(weights).is_dir()


def inherit_model(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Fill what [model] leaves open with the settings of the run that model.weights names.

    Args:
        tables: The tables of a recipe. Returned as they are where model.weights is not the folder of a run.

    Returns:
        The tables with a complete [model]. Settings that the recipe names stay as they are.
    """
    model = tables.get("model")
    weights = model.get("weights") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(weights, str) or not names_run(weights):
        return {**tables}
    source = parsing.to_tables(_open(weights).config.model)
    named = {key: value for key, value in model.items() if not (key == "backbone" and value == "auto")}
    inherited = {key: source[key] for key in ARCHITECTURE if key in source}
    for part in ("backbone", "head"):
        if named.get(part, inherited[part]) != inherited[part]:
            inherited.pop(f"{part}_options", None)  # those of another network
    if inherited["backbone"] == "features":
        inherited.pop("backbone_options", None)  # the width, which the data decides
    return {**tables, "model": {**inherited, **named}}


def load_start(model: Embedder, folder: str) -> dict[str, Any]:
    """Load the weights of a run: backbone and head, or the backbone alone where the head has another shape.

    Args:
        model: The new network.
        folder: The folder of the run; its selected weights are taken, or the newest where it is not finished.

    Returns:
        What was taken, for environment.json: run, step, sha256 of the weights, parts.

    Raises:
        ValueError: Where the backbone does not fit, or nothing fits.
    """
    run = _open(folder)
    weights: dict[str, Tensor] = run.model().state_dict()
    taken = {}
    for part in ("backbone", "head"):
        saved = _part(weights, part)
        differences = _differences(saved, _part(model.state_dict(), part))
        if not differences:
            taken[part] = saved
        elif part == "backbone":
            settings = run.config.model
            raise ValueError(
                f"the backbone of the run {folder} (model.backbone = {settings.backbone!r}) does not fit: "
                f"{'; '.join(differences)}. Use its backbone and its model.backbone_options, or start from another run"
            )
    if "head" not in taken:
        if not taken["backbone"]:
            raise ValueError(
                f"nothing of the run {folder} fits: its backbone has no weights, and its head (model.head = "
                f"{run.config.model.head!r}, model.dim = {run.config.model.dim}) has another shape"
            )
        warnings.warn(
            f"the head of the run {folder} (model.head = {run.config.model.head!r}, model.dim = "
            f"{run.config.model.dim}) has another shape: only the backbone starts from that run",
            stacklevel=2,
        )
    for part, saved in taken.items():
        getattr(model, part).load_state_dict(saved)
    sha256 = _digest({f"{part}.{key}": value for part, saved in taken.items() for key, value in saved.items()})
    return {"run": folder, "step": run.weights_step, "sha256": sha256, "parts": [*taken]}


def _open(folder: str) -> "Run":
    from kinfold.training.run import Run  # which builds on this module

    return Run.open(folder)


def _part(weights: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    prefix = f"{part}."
    return {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}


def _differences(saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """Weights that one side lacks or that have another shape, the first few of them."""
    shapes = [{key: tuple(value.shape) for key, value in side.items()} for side in (saved, wanted)]
    keys = [key for key in dict.fromkeys((*shapes[0], *shapes[1])) if shapes[0].get(key) != shapes[1].get(key)]
    more = [f"and {len(keys) - SHOWN} more"] if len(keys) > SHOWN else []
    return [f"{key} is {shapes[0].get(key)} there and {shapes[1].get(key)} here" for key in keys[:SHOWN]] + more


def _digest(weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for key, value in weights.items():
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
