"""Nested state in one safetensors file. Reading it executes no code, and the file contains its own checksum."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from kinfold.files.atomic import write_atomic
from kinfold.files.checksums import SHA256, compute_sha256
from kinfold.files.documents import parse_json, read_content

_STRUCTURE = "structure"  # the only entry of the header: the order of several entries would not be deterministic
_NO_DIGEST = "0" * 64
_KINDS = {
    "tensor",
    "value",
    "dict",
    "list",
    "tuple",
}  # tags of packed values; earlier versions wrote them without a checksum around them
_MARK = b'{\\"sha256\\": \\"'  # the bytes before the checksum in the file, inside of a quoted string


def write_state(path: Path, state: Any, within: Path | None = None) -> str:
    """Write nested dictionaries, lists, numbers and tensors as one safetensors file.

    Tensors keep their type and bits and are named by their path in the state. Everything else is JSON in the header of
    the file, together with the sha256 of the file, which is computed with zeros in place of itself.

    Args:
        path: The file.
        state: The nested state.
        within: A folder; no link is followed below it.

    Returns:
        The sha256 of the whole file, as `sha256sum` prints it.
    """
    content, sha256 = pack_state(state)
    write_atomic(path, lambda file: file.write(content), within)
    return sha256


def pack_state(state: Any) -> tuple[bytearray, str]:
    """Return the contents of the file that `write_state` writes, and their sha256."""
    tensors: dict[str, Tensor] = {}
    structure = json.dumps({"sha256": _NO_DIGEST, "state": _pack(state, tensors)})
    # a copy of each: safetensors refuses tensors that share memory, such as tied weights
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = bytearray(save(copies, {_STRUCTURE: structure}))
    start = content.index(_MARK) + len(_MARK)
    content[start : start + len(_NO_DIGEST)] = compute_sha256(content).encode()
    return content, compute_sha256(content)


def read_state(path: Path, sha256: str | None = None, within: Path | None = None) -> Any:
    """Read what `write_state` wrote, and check it.

    Args:
        path: The file.
        sha256: The checksum of the whole file, if it was recorded elsewhere. The one in the file is always checked.
        within: A folder; no link is followed below it.

    Returns:
        The nested state.

    Raises:
        ValueError: The file is missing or damaged, is another file, or has no checksum.
    """
    content = read_content(path, within)
    if sha256 is not None and compute_sha256(content) != sha256:
        raise ValueError(f"{path} is damaged: its contents are not what was written (sha256 differs)")
    try:
        tensors = load(content)
        length = int.from_bytes(content[:8], "little")
        header = parse_json(content[8 : 8 + length], {"__metadata__": {_STRUCTURE: str}}, path)
        structure = parse_json(header["__metadata__"][_STRUCTURE].encode(), {str: object}, path)
    except (SafetensorError, ValueError) as error:
        why = str(error).removeprefix(f"{path} is damaged: ")
        raise ValueError(f"{path} is damaged or not a file of this kind: {why}") from None
    if len(structure) == 1 and {*structure} <= _KINDS:
        raise ValueError(
            f"{path} has no checksum: an earlier version of kinfold wrote it. Write it again with this version, in "
            "another folder"
        )
    _check_digest(content, structure.get("sha256"), path)
    try:
        return _unpack(structure["state"], tensors)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged or not a file of this kind: {error}") from None


def _check_digest(content: bytes, recorded: object, path: Path) -> None:
    start = content.find(_MARK) + len(_MARK)
    end = start + len(_NO_DIGEST)
    digest = hashlib.sha256(memoryview(content)[:start])
    digest.update(_NO_DIGEST.encode())
    digest.update(memoryview(content)[end:])
    readable = isinstance(recorded, str) and SHA256.fullmatch(recorded) is not None
    if not readable or content[start:end] != str(recorded).encode() or digest.hexdigest() != recorded:
        raise ValueError(f"{path} is damaged: its contents are not what was written (sha256 differs)")


def _pack(value: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    if isinstance(value, Tensor):
        # named by its path, such as "model.head.weight", so that other programs can find it
        name = path.removeprefix(".") or "tensor"
        while name in tensors:  # {"a.b": ..., "a": {"b": ...}}
            name += "'"
        tensors[name] = value
        return {"tensor": name}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, dict):
        pairs = [(_pack(key, tensors), _pack(inner, tensors, f"{path}.{key}")) for key, inner in value.items()]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_pack(inner, tensors, f"{path}.{index}") for index, inner in enumerate(value)]}
    raise TypeError(f"{type(value).__name__} cannot be saved in a checkpoint")


def _unpack(packed: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, value),) = packed.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "value":
        return value
    if kind == "dict":
        return {_unpack(key, tensors): _unpack(inner, tensors) for key, inner in value}
    entries = [_unpack(inner, tensors) for inner in value]
    return entries if kind == "list" else tuple(entries)


def states_equal(a: Any, b: Any) -> bool:
    """Whether two nested states are equal in structure, type and every bit.

    Examples:
        >>> states_equal({"x": torch.zeros(2)}, {"x": torch.zeros(2)}), states_equal([1], [1.0])
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
        return states_equal([*a], [*b]) and all(states_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(states_equal, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (a != a and b != b)
    return bool(a == b)
