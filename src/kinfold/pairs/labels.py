"""Labels as users have them (integers, strings, lists, arrays, tensors), converted to one int64 tensor."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Labels = Tensor | np.ndarray[Any, Any] | Sequence[int] | Sequence[str]


def encode(labels: Labels, ref_labels: Labels | None = None, device: torch.device | None = None) -> list[Tensor]:
    """Convert labels to int64 tensors whose entries are equal exactly where the labels are equal.

    Args:
        labels: Integers or strings, (B,).
        ref_labels: A second set of labels of the same type, (R,).
        device: Device of the tensors.

    Returns:
        One tensor per argument.

    Raises:
        ValueError: Labels are not one-dimensional, not integers or strings, or the two sets differ in type.
    """
    arrays = [_as_array(entry) for entry in ([labels] if ref_labels is None else [labels, ref_labels])]
    if any(isinstance(entry, np.ndarray) for entry in arrays):
        strings = [np.asarray(entry).astype(str) for entry in arrays]
        if any(isinstance(entry, Tensor) for entry in arrays):
            raise ValueError("the two sets of labels must be of one type: got strings and integers")
        _, codes = np.unique(np.concatenate(strings), return_inverse=True)
        code = torch.from_numpy(codes.reshape(-1))
        first = len(strings[0])
        return [part.to(device) for part in (code[:first], code[first:])[: len(strings)]]
    return [entry.to(device=device, dtype=torch.int64) for entry in arrays if isinstance(entry, Tensor)]


def reindex(labels: Labels) -> tuple[Tensor, list[int] | list[str]]:
    """Number the classes 0..C-1, as losses with one parameter per class need them.

    Args:
        labels: Integers or strings, (B,).

    Returns:
        The labels as int64 numbers 0..C-1, (B,), and the list of the C classes in that order.

    Examples:
        >>> reindex([30, 10, 30])
        (tensor([1, 0, 1]), [10, 30])
        >>> reindex(["wren", "crow"])
        (tensor([1, 0]), ['crow', 'wren'])
    """
    array = _as_array(labels)
    if isinstance(array, np.ndarray):
        classes, codes = np.unique(array.astype(str), return_inverse=True)
        return torch.from_numpy(codes.reshape(-1)), [str(name) for name in classes]
    values, index = torch.unique(array.to(torch.int64), return_inverse=True)
    return index, [int(value) for value in values.tolist()]


def _as_array(labels: Labels) -> Tensor | np.ndarray[Any, Any]:
    """A one-dimensional integer tensor, or an array of strings."""
    if not isinstance(labels, Tensor):
        array = np.asarray(labels)
        if array.ndim == 1 and (array.dtype.kind in "US" or (array.dtype == object and _all_strings(array))):
            return array
        if array.dtype == object:
            raise ValueError("labels must be integers or strings, all of one type")
        labels = torch.from_numpy(array) if array.size else torch.zeros(array.shape, dtype=torch.int64)
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"labels must be integers or strings, got {labels.dtype}; use labels.long() if they hold integers (in a "
            "file: save them as integers), or relation= for degrees between 0 and 1"
        )
    if labels.dim() != 1:
        raise ValueError(f"labels must have shape (B,), got {tuple(labels.shape)}; squeeze or argmax them first")
    return labels


def _all_strings(array: np.ndarray[Any, Any]) -> bool:
    return all(isinstance(entry, str) for entry in array.tolist())
