"""Fast arithmetic with boolean masks.

Mixed boolean and floating point arithmetic is not vectorized on CPUs: `torch.where` costs ten times as much as a
multiplication. Viewing a mask as bytes and converting it costs almost nothing.
"""

import torch
from torch import Tensor

from kinfold.pairs.transforms import is_transformed

# -HUGE replaces minus infinity, whose gradient would be NaN; adding any score does not change it much
HUGE = 1e30


def mask_to_float(mask: Tensor, like: Tensor) -> Tensor:
    """Convert a mask to 1 where True and 0 where False, in the precision of `like`.

    Examples:
        >>> mask_to_float(torch.tensor([True, False]), torch.zeros(1))
        tensor([1., 0.])
    """
    return mask.view(torch.uint8).to(like.dtype)


def mask_out(values: Tensor, mask: Tensor) -> Tensor:
    """Replace the values outside the mask by about -1e30.

    Examples:
        >>> mask_out(torch.tensor([3.0, 5.0]), torch.tensor([True, False]))
        tensor([ 3.0000e+00, -1.0000e+30])
    """
    return values + (mask_to_float(mask, values) - 1.0) * HUGE


def count(mask: Tensor, dim: int = 1) -> Tensor:
    """Count the True entries along one dimension, int32.

    Examples:
        >>> count(torch.tensor([[True, True], [False, False]]))
        tensor([2, 0], dtype=torch.int32)
    """
    return mask.view(torch.uint8).sum(dim=dim, dtype=torch.int32)


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
    if is_transformed():  # the width must not depend on values
        top = mask.view(torch.uint8).topk(mask.shape[1], dim=1)
        return top.indices, top.values.bool()
    counts = count(mask)
    width = max(1, int(counts.max())) if counts.numel() else 1
    exists = torch.arange(width, device=mask.device) < counts[:, None]
    index = torch.zeros(mask.shape[0], width, dtype=torch.int64, device=mask.device)
    index[exists] = mask.nonzero()[:, 1]
    return index, exists
