"""Weights from a local file: nothing in it is executed, and every key and shape is checked before any is loaded."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from kinfold.models.backbone import Backbone

SHOWN = 4  # keys that an error names


def list_weight_shapes(backbone: Backbone) -> dict[str, tuple[int, ...]]:
    """Key -> shape of what a weight file must hold. Counters of batches, which old files lack, are not asked for."""
    return {key: tuple(value.shape) for key, value in backbone.get_network().state_dict().items() if not _counter(key)}


def load_weights(backbone: Backbone, path: Path | str) -> None:
    """Load a .safetensors, .pth or .pt file into a backbone; a ValueError says which keys do not fit.

    Tolerated: the prefix "module." of parallel training, a {"state_dict": ...} around the weights, the keys of a
    classifier, missing counters of batches, and vectors stored as one row (1, C), as early Caffe conversions have them.
    """
    path = Path(path)
    expected = list_weight_shapes(backbone)
    found = {
        key: value
        for key, value in _without_prefix(read_weights(path)).items()
        if not key.startswith(backbone.classifier) and not _counter(key)
    }
    for key, shape in expected.items():
        if key in found and len(shape) == 1 and tuple(found[key].shape) == (1, *shape):
            found[key] = found[key][0]
    wrong = [
        f"{key} is {_shown(found[key].shape)}, not {_shown(shape)}"
        for key, shape in expected.items()
        if key in found and tuple(found[key].shape) != shape
    ]
    problems = [
        *_some("missing", [key for key in expected if key not in found]),
        *_some("unexpected", [key for key in found if key not in expected]),
        *_some("of another shape", wrong),
    ]
    if problems:
        raise ValueError(
            f"{path} does not fit {type(backbone).__name__}: {'; '.join(problems)}. Expected is "
            f"{backbone.weight_file}; kinfold.models.list_weight_shapes(backbone) lists its {len(expected)} keys"
        )
    backbone.get_network().load_state_dict(
        found, strict=False
    )  # all that strict would refuse is refused above, in plainer words


def read_weights(path: Path) -> dict[str, Tensor]:
    """Name -> tensor from a file; a pickle that would run code is refused."""
    if not path.is_file():
        raise ValueError(f"there is no weight file {path}")
    if path.suffix == ".safetensors":
        try:
            read: object = load_file(path)
        except Exception as problem:  # its own exception type, which is no ValueError
            raise ValueError(f"{path} is no safetensors file: {problem}") from None
    elif path.suffix in (".pth", ".pt"):
        read = _unpickled(path)
    else:
        raise ValueError(f"weights come from .safetensors, .pth or .pt files, got {path.name}")
    if isinstance(read, dict) and isinstance(read.get("state_dict"), dict):
        read = read["state_dict"]
    if not isinstance(read, dict) or not all(isinstance(value, Tensor) for value in read.values()):
        raise ValueError(
            f"{path} holds no plain dictionary of tensors; save one with torch.save(model.state_dict(), ...)"
        )
    return {str(key): value for key, value in read.items()}


def _unpickled(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:  # a damaged file ends the reader in many ways: KeyError, struct.error, EOFError, ...
        first = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise ValueError(
            f"{path} is refused: it is damaged, or holds more than tensors, and what it holds could be code that runs "
            f"on loading ({first[:200]}). Save the weights alone, with torch.save(model.state_dict(), ...) or as "
            "safetensors"
        ) from None


def _without_prefix(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    if weights and all(key.startswith("module.") for key in weights):
        return {key.removeprefix("module."): value for key, value in weights.items()}
    return weights


def _counter(key: str) -> bool:
    return key.endswith("num_batches_tracked")


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a scalar"


def _some(what: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return [f"{what}: {', '.join(entries[:SHOWN])}{more}"]
