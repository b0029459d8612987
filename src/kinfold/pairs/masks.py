"""Fast arithmetic with boolean masks.

Mixed boolean and floating point arithmetic is not vectorized on CPUs: `torch.where` costs twenty times as much as a
multiplication, a comparison that returns booleans four times. Viewing a mask as bytes and converting it costs almost
nothing, and so does converting numbers to booleans.
"""

from typing import cast

import torch
from torch import Tensor

from kinfold.pairs.transforms import is_traced, is_transformed

# -HUGE replaces minus infinity, whose gradient would be NaN; adding any score does not change it much
HUGE = 1e30


def set_columns(mask: Tensor, index: Tensor, exists: Tensor) -> None:
    """Store what `list_columns` returns beside a mask whose maker knows it, so that it is not searched."""
    mask.kinfold_columns = (index, exists)  # type: ignore[attr-defined]


def get_columns(mask: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return what `set_columns` stored for this very tensor; None for all others, such as a slice of it."""
    return cast("tuple[Tensor, Tensor] | None", getattr(mask, "kinfold_columns", None))


def set_excluded(mask: Tensor, positions: Tensor) -> None:
    """Store the positions (T,) of the False entries in the flattened mask, if they are few and its maker knows them."""
    mask.kinfold_excluded = positions  # type: ignore[attr-defined]


def get_excluded(mask: Tensor) -> Tensor | None:
    """Return what `set_excluded` stored for this very tensor; None for all others."""
    return cast("Tensor | None", getattr(mask, "kinfold_excluded", None))


def mask_to_float(mask: Tensor, like: Tensor) -> Tensor:
    """Convert a mask to 1 where True and 0 where False, in the precision of `like`.

    Examples:
        >>> mask_to_float(torch.tensor([True, False]), torch.zeros(1))
        tensor([1., 0.])
    """
    return mask.to(like.dtype) if is_traced() else mask.view(torch.uint8).to(like.dtype)


def exceeds(values: Tensor, limit: Tensor) -> Tensor:
    """Return 1 where a value is above its limit and 0 elsewhere, without a gradient.

    Args:
        values: The values.
        limit: Their limits, in a shape that broadcasts to theirs.

    Examples:
        >>> exceeds(torch.tensor([3.0, 5.0]), torch.tensor(4.0))
        tensor([0., 1.])
    """
    if is_transformed():
        return (values > limit).to(values.dtype)
    return torch.gt(values.detach(), limit.detach(), out=torch.empty_like(values))


def mask_out(values: Tensor, mask: Tensor) -> Tensor:
    """Replace the values outside the mask by about -1e30.

    Examples:
        >>> mask_out(torch.tensor([3.0, 5.0]), torch.tensor([True, False]))
        tensor([ 3.0000e+00, -1.0000e+30])
    """
    excluded = get_excluded(mask)
    if excluded is not None:
        return values.reshape(-1).index_fill(0, excluded, -HUGE).reshape(values.shape)
    if is_traced():  # a compiler vectorizes it
        return torch.where(mask, values, -HUGE)
    return values.add(mask_to_float(mask, values).sub_(1.0), alpha=HUGE)


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum the values inside the mask of each row, (B,).

    Examples:
        >>> masked_sum(torch.tensor([[3.0, 5.0]]), torch.tensor([[True, False]]))
        tensor([3.])
    """
    columns = get_columns(mask)
    if columns is None:
        return (values * mask_to_float(mask, values)).sum(dim=1)
    index, exists = columns
    return (values.gather(1, index) * mask_to_float(exists, values)).sum(dim=1)


def union(positives: Tensor, negatives: Tensor) -> Tensor:
    """Return the mask of all pairs, positive or negative.

    Examples:
        >>> union(torch.tensor([[True, False, False]]), torch.tensor([[False, True, False]]))
        tensor([[ True,  True, False]])
    """
    both = positives | negatives
    excluded = get_excluded(negatives)
    if excluded is not None and get_columns(positives) is not None:
        set_excluded(both, excluded[~positives.view(-1)[excluded]])
    return both


def gather_few(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of the True entries and a mask of them, (B, W), if these entries are few and known.

    Otherwise values and mask stay as they are.
    """
    columns = get_columns(mask)
    return (values, mask) if columns is None else (values.gather(1, columns[0]), columns[1])


def narrow(mask: Tensor, keep: Tensor) -> Tensor:
    """Return the entries of the mask that are also True in `keep`; few and known columns stay known.

    Examples:
        >>> narrow(torch.tensor([True, True]), torch.tensor([True, False]))
        tensor([ True, False])
    """
    narrower = mask & keep
    columns = get_columns(mask)
    if columns is not None:
        index, exists = columns
        set_columns(narrower, index, exists & keep.gather(1, index))
    return narrower


def count(mask: Tensor, dim: int = 1) -> Tensor:
    """Count the True entries along one dimension, int32.

    Examples:
        >>> count(torch.tensor([[True, True], [False, False]]))
        tensor([2, 0], dtype=torch.int32)
    """
    columns = get_columns(mask) if dim == 1 else None
    if columns is not None:
        return columns[1].sum(dim=1, dtype=torch.int32)
    excluded = get_excluded(mask) if dim == 1 else None
    if excluded is not None:
        rows, width = mask.shape
        return width - torch.bincount(excluded // width, minlength=rows).to(torch.int32)
    return (
        mask.sum(dim=dim, dtype=torch.int32) if is_traced() else mask.view(torch.uint8).sum(dim=dim, dtype=torch.int32)
    )


def list_columns(mask: Tensor) -> tuple[Tensor, Tensor]:
    """List the columns of the True entries of each row.

    Returns:
        Column indices (B, W), where W is the largest number of True entries in a row, and which of them exist (B, W).

    Examples:
        >>> list_columns(torch.tensor([[False, True, True], [False, True, False]]))
        (tensor([[1, 2],
                [1, 0]]), tensor([[ True,  True],
                [ True, False]]))
    """
    known = get_columns(mask)
    if known is not None:
        return known
    if is_traced():  # one column for each reference, as below, would make a compiled tile slow
        raise RuntimeError("the positives of a row are many or unknown before the tile is computed")
    if is_transformed():  # the width must not depend on values
        top = mask.view(torch.uint8).topk(mask.shape[1], dim=1)
        return top.indices, top.values.bool()
    counts = count(mask)
    width = max(1, int(counts.max())) if counts.numel() else 1
    exists = torch.arange(width, device=mask.device) < counts[:, None]
    index = torch.zeros(mask.shape[0], width, dtype=torch.int64, device=mask.device)
    index[exists] = mask.nonzero()[:, 1]
    return index, exists
