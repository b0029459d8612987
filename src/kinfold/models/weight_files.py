"""Weights from a local file: nothing in it is executed, and all keys and shapes are checked before any is loaded."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from kinfold import registry
from kinfold.models.backbone import Backbone

SHOWN = 4  # keys in an error message


def list_weight_shapes(backbone: Backbone) -> dict[str, tuple[int, ...]]:
    """Return the key and shape of every tensor that a weight file must hold.

    Batch counters of batch norm, which old files lack, are not required.
    """
    return {
        key: tuple(value.shape)
        for key, value in backbone.get_network().state_dict().items()
        if not _is_batch_counter(key)
    }


def load_weights(backbone: Backbone, path: Path | str) -> None:
    """Load a weight file into a backbone.

    Accepted: the prefix "module." of parallel training, a {"state_dict": ...} around the weights, keys of a classifier
    (not loaded), missing batch counters, and vectors stored as one row (1, C), as in early Caffe conversions.

    Args:
        backbone: The backbone.
        path: A .safetensors, .pth or .pt file.

    Raises:
        ValueError: The file is missing, damaged, holds more than tensors, or has other keys or shapes.
    """
    path = Path(path)
    expected = list_weight_shapes(backbone)
    weights = {
        key: value
        for key, value in _remove_prefix(read_weights(path)).items()
        if not key.startswith(backbone.classifier) and not _is_batch_counter(key)
    }
    for key, shape in expected.items():
        if key in weights and len(shape) == 1 and tuple(weights[key].shape) == (1, *shape):
            weights[key] = weights[key][0]
    other_shapes = [
        f"{key} is {_format_shape(weights[key].shape)}, not {_format_shape(shape)}"
        for key, shape in expected.items()
        if key in weights and tuple(weights[key].shape) != shape
    ]
    problems = [
        *_format_entries("missing", [key for key in expected if key not in weights]),
        *_format_entries("unexpected", [key for key in weights if key not in expected]),
        *_format_entries("of another shape", other_shapes),
    ]
    if problems:
        raise ValueError(
            f"{path} does not fit {type(backbone).__name__}: {'; '.join(problems)}. Expected is "
            f"{backbone.weight_file}; kinfold.models.list_weight_shapes(backbone) lists its {len(expected)} keys"
        )
    backbone.get_network().load_state_dict(
        weights, strict=False
    )  # all differences were refused above, with a clearer message


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name; a pickle that would run code is refused."""
    if not path.is_file():
        raise ValueError(f"there is no weight file {path}{registry.suggest(str(path), ['imagenet'])}")
    if path.suffix == ".safetensors":
        try:
            content: object = load_file(path)
        except Exception as error:  # an exception type of safetensors, which is no ValueError
            raise ValueError(f"{path} is no safetensors file: {error}") from None
    elif path.suffix in (".pth", ".pt"):
        content = _read_pickle(path)
    else:
        raise ValueError(f"weights come from .safetensors, .pth or .pt files, got {path.name}")
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(
            f"{path} holds no plain dictionary of tensors; save one with torch.save(model.state_dict(), ...)"
        )
    return {str(key): value for key, value in content.items()}


def _read_pickle(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise many kinds: KeyError, struct.error, EOFError, ...
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"{path} is refused: it is damaged, or holds more than tensors, and what it holds could be code that runs "
            f"on loading ({first[:200]}). Save the weights alone, with torch.save(model.state_dict(), ...) or as "
            "safetensors"
        ) from None


def _remove_prefix(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    if weights and all(key.startswith("module.") for key in weights):
        return {key.removeprefix("module."): value for key, value in weights.items()}
    return weights


def _is_batch_counter(key: str) -> bool:
    return key.endswith("num_batches_tracked")


def _format_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a scalar"


def _format_entries(what: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return [f"{what}: {', '.join(entries[:SHOWN])}{more}"]


def digest_weights(weights: Mapping[str, Tensor]) -> str:
    """Return a sha256 of the names, types, shapes and values of weights."""
    digest = hashlib.sha256()
    for key, value in weights.items():
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
