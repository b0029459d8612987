"""Mined tuples that are passed to a loss: objects of this package, or index tensors as other libraries use them."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from kinfold.pairs.relation import Relation
from kinfold.pairs.transforms import is_transformed
from kinfold.pairs.tuples import Quadruplets, Triplets

IndexTensors: TypeAlias = Sequence[Tensor]
Tuples: TypeAlias = Relation | Triplets | Quadruplets

_EXPECTED = (
    "tuples must be what a miner of kinfold returns, or index tensors: (anchor, positive, negative) for triplets, "
    "(anchor1, positive, anchor2, negative) for pairs"
)


def read_tuples(tuples: Tuples | IndexTensors, shape: tuple[int, int], device: torch.device) -> Tuples:
    """Check mined tuples against the pairs (B, R) that they index.

    Three index tensors become `Triplets`. Four become a `Relation` whose positives are the pairs (anchor1, positive)
    and whose negatives are the pairs (anchor2, negative). Anchors are rows of the batch, positives and negatives are
    rows of the reference set, which is the batch itself if none was passed.

    Args:
        tuples: `Relation`, `Triplets`, `Quadruplets`, or three or four integer tensors of one dimension.
        shape: Number of anchors and number of references.
        device: Where the loss is computed.

    Raises:
        ValueError: The tuples have another type, unequal lengths, an index outside the batch or the reference set, or
            list a pair twice.

    Examples:
        >>> a, p, n = torch.tensor([0]), torch.tensor([1]), torch.tensor([2])
        >>> read_tuples((a, p, n), (3, 3), torch.device("cpu")).negative
        tensor([2])
        >>> read_tuples((a, p, a, n), (3, 3), torch.device("cpu")).positives[0]
        tensor([False,  True, False])
    """
    if isinstance(tuples, Relation):
        if tuple(tuples.positives.shape) != shape:
            raise ValueError(
                f"the mined relation has shape {tuple(tuples.positives.shape)}, the pairs {shape}: "
                "mine on the same batch and reference set"
            )
        return tuples
    if isinstance(tuples, Triplets | Quadruplets):
        if tuples.anchor.device.type == "cpu":  # on other devices the check would wait for the device
            _check_range({"anchor": (tuples.anchor, shape[0])} | _list_references(tuples, shape[1]))
        return tuples
    if not isinstance(tuples, tuple | list):
        raise ValueError(f"{_EXPECTED}; got {type(tuples).__name__}")
    if len(tuples) not in (3, 4):
        raise ValueError(f"{_EXPECTED}; got {len(tuples)} entries")
    index = [_as_index(entry, position, device) for position, entry in enumerate(tuples)]
    if len(index) == 3:
        anchor, positive, negative = index
        _check_lengths(anchor=anchor, positive=positive, negative=negative)
        _check_range({"anchor": (anchor, shape[0]), "positive": (positive, shape[1]), "negative": (negative, shape[1])})
        return Triplets(anchor, positive, negative, torch.ones_like(anchor, dtype=torch.bool))
    first, positive, second, negative = index
    _check_lengths(anchor1=first, positive=positive)
    _check_lengths(anchor2=second, negative=negative)
    _check_range({"anchor1": (first, shape[0]), "positive": (positive, shape[1])})
    _check_range({"anchor2": (second, shape[0]), "negative": (negative, shape[1])})
    relation = Relation(_mask(first, positive, shape), _mask(second, negative, shape))
    _check_listed_once(relation, len(positive), len(negative))
    return relation


def _as_index(entry: object, position: int, device: torch.device) -> Tensor:
    if not isinstance(entry, Tensor) or entry.dim() != 1:
        got = f"{tuple(entry.shape)}" if isinstance(entry, Tensor) else type(entry).__name__
        raise ValueError(f"{_EXPECTED}; entry {position} must be a tensor of shape (T,), got {got}")
    is_integer = not (entry.is_floating_point() or entry.is_complex() or entry.dtype == torch.bool)
    if not is_integer and entry.numel():  # an empty list becomes a floating point tensor
        raise ValueError(f"{_EXPECTED}; entry {position} must hold integers, got {entry.dtype}")
    return entry.to(device, torch.int64)


def _list_references(tuples: Triplets | Quadruplets, count: int) -> dict[str, tuple[Tensor, int]]:
    names = ("positive", "negative", "fourth") if isinstance(tuples, Quadruplets) else ("positive", "negative")
    # with an empty reference set no tuple is valid and no index is used
    return {name: (getattr(tuples, name), count) for name in names} if count else {}


def _check_lengths(**index: Tensor) -> None:
    if len({len(entry) for entry in index.values()}) > 1:
        lengths = ", ".join(f"{len(entry)} of {name}" for name, entry in index.items())
        raise ValueError(f"{_EXPECTED}; they must have equal lengths, got {lengths}")


def _check_range(index: dict[str, tuple[Tensor, int]]) -> None:
    if is_transformed():
        return
    for name, (entry, count) in index.items():
        if entry.numel() == 0:
            continue
        low, high = (int(bound) for bound in entry.aminmax())
        if low < 0 or high >= count:
            rows = "the batch" if name.startswith("anchor") else "the reference set (the batch, without one)"
            raise ValueError(
                f"{name} runs from {low} to {high}, but {rows} has the rows 0..{count - 1}: "
                "mine on the same batch and reference set"
            )


def _mask(row: Tensor, column: Tensor, shape: tuple[int, int]) -> Tensor:
    mask = torch.zeros(shape, dtype=torch.bool, device=row.device)
    mask[row, column] = True
    return mask


def _check_listed_once(relation: Relation, positives: int, negatives: int) -> None:
    if is_transformed():
        return
    listed = {"positive": (relation.positives, positives), "negative": (relation.negatives, negatives)}
    for name, (mask, length) in listed.items():
        if int(mask.sum()) != length:
            raise ValueError(
                f"a {name} pair is listed more than once, but would count once: list every pair once, or pass "
                "triplets (anchor, positive, negative), which count as often as they are listed"
            )
    if bool((relation.positives & relation.negatives).any()):
        raise ValueError("a pair is listed as positive and as negative: list it as one of them")
