"""Numbers as JSON can hold them: rounded lists, null for what is undefined, base64 for long arrays."""

import base64
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from kinfold.data.items import Array

SHORT = np.iinfo(np.int16)


def packed(array: Array) -> dict[str, Any]:
    """An array of whole or real numbers in the smallest of int16, int32 and float32 that holds it.

    >>> packed(np.array([[1, -1]]))
    {'base64': 'AQD//w==', 'type': 'int16', 'shape': [1, 2]}
    """
    if array.dtype.kind == "f":
        kind = "float32"
    else:
        short = not array.size or (array.min() >= SHORT.min and array.max() <= SHORT.max)
        kind = "int16" if short else "int32"
    data = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return {"base64": base64.b64encode(data).decode("ascii"), "type": kind, "shape": [*array.shape]}


def unpacked(given: Any) -> Array:
    """The array again, from what `packed` gave or from lists.

    >>> unpacked(packed(np.array([[1, -1]]))).tolist(), unpacked([0.5]).tolist()
    ([[1, -1]], [0.5])
    """
    if not isinstance(given, dict):
        return np.asarray(given)
    data = np.frombuffer(base64.b64decode(given["base64"]), dtype=np.dtype(given["type"]).newbyteorder("<"))
    return data.reshape(given["shape"])


def number(value: float | None, digits: int = 5) -> float | None:
    """Rounded to significant digits; None where it is undefined.

    >>> number(0.123456789), number(float("nan")), number(None)
    (0.12346, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def numbers(values: Iterable[float | None], digits: int = 5) -> list[float | None]:
    return [number(value, digits) for value in values]


def defined(value: Any) -> Any:
    """The same with every number that JSON does not know as null."""
    if isinstance(value, dict):
        return {key: defined(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [defined(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
