"""Labels as users have them (any integers, strings, lists, arrays, tensors) as one int64 tensor."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Labels = Tensor | np.ndarray[Any, Any] | Sequence[int] | Sequence[str]


def encode(labels: Labels, others: Labels | None = None, device: torch.device | None = None) -> list[Tensor]:
    """int64 tensors in which two entries are equal exactly when the given labels are; one tensor per argument."""
    given = [labels] if others is None else [labels, others]
    checked = [_as_array(entry) for entry in given]
    if any(isinstance(entry, np.ndarray) for entry in checked):
        words = [np.asarray(entry).astype(str) for entry in checked]
        if any(isinstance(entry, Tensor) for entry in checked):
            raise ValueError("the two sets of labels must be of one type: got strings and integers")
        _, codes = np.unique(np.concatenate(words), return_inverse=True)
        code = torch.from_numpy(codes.reshape(-1))
        return [part.to(device) for part in (code[: len(words[0])], code[len(words[0]) :])[: len(words)]]
    return [entry.to(device=device, dtype=torch.int64) for entry in checked if isinstance(entry, Tensor)]


def reindex(labels: Labels) -> tuple[Tensor, list[int] | list[str]]:
    """Labels as 0..C-1, and the list of classes they stand for: what losses with one parameter per class need.

    >>> reindex([30, 10, 30])
    (tensor([1, 0, 1]), [10, 30])
    >>> reindex(["wren", "crow"])
    (tensor([1, 0]), ['crow', 'wren'])
    """
    checked = _as_array(labels)
    if isinstance(checked, np.ndarray):
        classes, codes = np.unique(checked.astype(str), return_inverse=True)
        return torch.from_numpy(codes.reshape(-1)), [str(name) for name in classes]
    found, index = torch.unique(checked.to(torch.int64), return_inverse=True)
    return index, [int(name) for name in found.tolist()]


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
            f"labels must be integers or strings, got {labels.dtype}; "
            "use labels.long() if they are whole numbers (in a file: save them as integers), or relation= for "
            "real-valued kinship"
        )
    if labels.dim() != 1:
        raise ValueError(f"labels must have shape (B,), got {tuple(labels.shape)}; squeeze or argmax them first")
    return labels


def _all_strings(array: np.ndarray[Any, Any]) -> bool:
    return all(isinstance(entry, str) for entry in array.tolist())
