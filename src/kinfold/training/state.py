"""Nested state in one safetensors file, which executes nothing when it is read."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from kinfold.files import write_whole

_STRUCTURE = "structure"


def write_state(path: Path, state: Any) -> str:
    """Nested dictionaries, lists and numbers with tensors among them, as safetensors; gives the sha256 of the file.

    Tensors keep type and bits, and are named by their place; all else stands as JSON in the file's own header.
    """
    tensors: dict[str, Tensor] = {}
    structure = json.dumps(_packed(state, tensors))
    # a copy of each: safetensors refuses tensors that share memory, such as tied weights
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = save(plain, {_STRUCTURE: structure})
    write_whole(path, lambda file: file.write(content))
    return hashlib.sha256(content).hexdigest()


def read_state(path: Path, sha256: str | None = None) -> Any:
    """What `write_state` wrote; ValueError where the file is missing, damaged or another one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except OSError as wrong:
        raise ValueError(f"{path} cannot be read: {wrong.strerror}") from None
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path} is damaged: its contents are not what was written (sha256 differs)")
    try:
        tensors = load(content)
        length = int.from_bytes(content[:8], "little")
        structure = json.loads(content[8 : 8 + length])["__metadata__"][_STRUCTURE]
        return _unpacked(json.loads(structure), tensors)
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as wrong:
        raise ValueError(f"{path} is damaged or not a file of this kind: {wrong}") from None


def _packed(value: Any, tensors: dict[str, Tensor], place: str = "") -> Any:
    if isinstance(value, Tensor):
        # by where it stands, so that other programs find their way: "model.head.weight"
        name = place.removeprefix(".") or "tensor"
        while name in tensors:  # {"a.b": ..., "a": {"b": ...}}
            name += "'"
        tensors[name] = value
        return {"tensor": name}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, dict):
        pairs = [(_packed(key, tensors), _packed(inner, tensors, f"{place}.{key}")) for key, inner in value.items()]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_packed(inner, tensors, f"{place}.{index}") for index, inner in enumerate(value)]}
    raise TypeError(f"{type(value).__name__} cannot be saved in a checkpoint")


def _unpacked(packed: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, value),) = packed.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "value":
        return value
    if kind == "dict":
        return {_unpacked(key, tensors): _unpacked(inner, tensors) for key, inner in value}
    found = [_unpacked(inner, tensors) for inner in value]
    return found if kind == "list" else tuple(found)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two nested states are equal in structure, type and every bit.

    >>> same_bits({"x": torch.zeros(2)}, {"x": torch.zeros(2)}), same_bits([1], [1.0])
    (True, False)
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        left, right = (x.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
        return bool(torch.equal(left, right))
    if isinstance(a, dict):
        return same_bits([*a], [*b]) and all(same_bits(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (a != a and b != b)
    return bool(a == b)
