"""Draw one column per row, uniformly or by weight, from an explicit generator."""

import torch
from torch import Tensor

from kinfold.pairs.masks import count


def fall_back(preferred: Tensor, every: Tensor) -> Tensor:
    """Return the mask `preferred`, and `every` in the rows where it is empty; `every` contains `preferred`."""
    return preferred | (every & (count(preferred) == 0)[:, None])


def draw_uniform(mask: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a True column of each row uniformly.

    Returns:
        Column of each row (B,), and whether the row has a True column (B,).

    Examples:
        >>> draw_uniform(torch.tensor([[False, True], [False, False]]), torch.Generator())
        (tensor([1, 0]), tensor([ True, False]))
    """
    # float32 represents counts exactly up to 2^24 columns
    return draw_weighted(mask.view(torch.uint8).float(), generator)


def draw_weighted(weights: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a column of each row with probability proportional to its weight, which is not negative.

    One random number per row is compared with the cumulative sum of the weights.

    Returns:
        Column of each row (B,), and whether the row has a positive weight (B,).
    """
    rows, columns = weights.shape
    chance = torch.rand(rows, generator=generator, device=generator.device, dtype=torch.float64)
    chance = chance.to(weights.device, weights.dtype)
    if columns == 0:
        return torch.zeros(rows, dtype=torch.int64, device=weights.device), torch.zeros_like(chance, dtype=torch.bool)
    cumulative = weights.cumsum(dim=1)
    total = cumulative[:, -1]
    exists = total > 0
    # strictly below the total, so that the search ends at a column of positive weight
    level = torch.minimum(chance * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, level[:, None], right=True).squeeze(1).clamp(max=columns - 1)
    return torch.where(exists, index, 0), exists


def mark_smallest(order: Tensor, counts: Tensor) -> Tensor:
    """Mark the `counts` (B,) smallest finite entries of each row of `order` (B, R).

    Examples:
        >>> mark_smallest(torch.tensor([[0.3, 0.1, 0.2], [torch.inf, 0.5, torch.inf]]), torch.tensor([2, 2]))
        tensor([[False,  True,  True],
                [False,  True, False]])
    """
    mask = torch.zeros_like(order, dtype=torch.bool)
    most = min(int(counts.max()), order.shape[1]) if order.numel() else 0
    if most == 0:
        return mask
    smallest = order.topk(most, dim=1, largest=False, sorted=True)
    is_marked = torch.arange(most, device=counts.device) < counts[:, None]
    return mask.scatter_(1, smallest.indices, is_marked & smallest.values.isfinite())
