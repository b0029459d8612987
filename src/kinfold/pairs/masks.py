"""Boolean masks as numbers, without the slow paths.

Mixed boolean and floating point arithmetic is not vectorised on CPUs: selecting by a mask costs ten times as much as
multiplying by it. A mask seen as bytes converts for almost nothing.
"""

import torch
from torch import Tensor

from kinfold.pairs.transforms import is_transformed

# stands for minus infinity where that would make NaN of a gradient; survives addition of any score
LOWEST = 1e30


def number(mask: Tensor, like: Tensor) -> Tensor:
    """1 where True and 0 where False, in the precision of `like`.

    >>> number(torch.tensor([True, False]), torch.zeros(1))
    tensor([1., 0.])
    """
    return mask.view(torch.uint8).to(like.dtype)


def lowered(values: Tensor, mask: Tensor) -> Tensor:
    """The values, and about -1e30 outside the mask.

    >>> lowered(torch.tensor([3.0, 5.0]), torch.tensor([True, False]))
    tensor([ 3.0000e+00, -1.0000e+30])
    """
    return values + (number(mask, values) - 1.0) * LOWEST


def count(mask: Tensor, dim: int = 1) -> Tensor:
    """How many are True, int32.

    >>> count(torch.tensor([[True, True], [False, False]]))
    tensor([2, 0], dtype=torch.int32)
    """
    return mask.view(torch.uint8).sum(dim=dim, dtype=torch.int32)


def columns(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The columns of the True entries of each row, (B, W), and which of them exist; W is the longest row's number.

    >>> columns(torch.tensor([[False, True, True], [False, True, False]]))
    (tensor([[1, 2],
            [1, 0]]), tensor([[ True,  True],
            [ True, False]]))
    """
    if is_transformed():  # a fixed width is needed
        found = mask.view(torch.uint8).topk(mask.shape[1], dim=1)
        return found.indices, found.values.bool()
    counts = count(mask)
    width = max(1, int(counts.max())) if counts.numel() else 1
    place = torch.arange(width, device=mask.device)
    exists = place < counts[:, None]
    index = torch.zeros(mask.shape[0], width, dtype=torch.int64, device=mask.device)
    index[exists] = mask.nonzero()[:, 1]
    return index, exists
