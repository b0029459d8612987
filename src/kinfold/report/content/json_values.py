"""Numbers and arrays as JSON can hold them: rounded numbers, null for undefined ones, base64 for long arrays."""

import base64
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from kinfold.data.items import Array

_INT16 = np.iinfo(np.int16)


def encode_array(array: Array) -> dict[str, Any]:
    """Encode an array in the smallest of int16, int32 and float32 that holds it.

    Examples:
        >>> encode_array(np.array([[1, -1]]))
        {'base64': 'AQD//w==', 'type': 'int16', 'shape': [1, 2]}
    """
    if array.dtype.kind == "f":
        kind = "float32"
    else:
        short = not array.size or (array.min() >= _INT16.min and array.max() <= _INT16.max)
        kind = "int16" if short else "int32"
    data = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return {"base64": base64.b64encode(data).decode("ascii"), "type": kind, "shape": [*array.shape]}


def decode_array(value: Any) -> Array:
    """Decode an array from the result of `encode_array`, or from lists.

    Examples:
        >>> decode_array(encode_array(np.array([[1, -1]]))).tolist(), decode_array([0.5]).tolist()
        ([[1, -1]], [0.5])
    """
    if not isinstance(value, dict):
        return np.asarray(value)
    data = np.frombuffer(base64.b64decode(value["base64"]), dtype=np.dtype(value["type"]).newbyteorder("<"))
    return data.reshape(value["shape"])


def round_number(value: float | None, digits: int = 5) -> float | None:
    """Round to significant digits; None for an undefined number.

    Examples:
        >>> round_number(0.123456789), round_number(float("nan")), round_number(None)
        (0.12346, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def round_numbers(values: Iterable[float | None], digits: int = 5) -> list[float | None]:
    """Round every number as `round_number` does."""
    return [round_number(value, digits) for value in values]
