"""Drawing one column per row, uniformly or by weight, from an explicit generator."""

import torch
from torch import Tensor

from kinfold.pairs.masks import count


def or_all(some: Tensor, every: Tensor) -> Tensor:
    """The first mask, and in rows where it is empty the second, which contains it."""
    return some | (every & (count(some) == 0)[:, None])


def choose(mask: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A uniformly drawn True column of each row (B,), and whether the row has one.

    >>> choose(torch.tensor([[False, True], [False, False]]), torch.Generator())
    (tensor([1, 0]), tensor([ True, False]))
    """
    # float32 counts whole numbers exactly up to 2^24 columns
    return draw(mask.view(torch.uint8).float(), generator)


def draw(weights: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A column of each row (B,) with probability in proportion to its weight >= 0, and whether any weight is positive.

    One random number per row is laid on the running sum of the weights.
    """
    rows, columns = weights.shape
    chance = torch.rand(rows, generator=generator, device=generator.device, dtype=torch.float64)
    chance = chance.to(weights.device, weights.dtype)
    if columns == 0:
        return torch.zeros(rows, dtype=torch.int64, device=weights.device), torch.zeros_like(chance, dtype=torch.bool)
    running = weights.cumsum(dim=1)
    total = running[:, -1]
    found = total > 0
    # strictly below the total, so that a column of positive weight always lies above the mark
    mark = torch.minimum(chance * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(running, mark[:, None], right=True).squeeze(1).clamp(max=columns - 1)
    return torch.where(found, index, 0), found


def take_first(order: Tensor, counts: Tensor) -> Tensor:
    """Mark the `counts` (B,) smallest finite entries of each row of `order` (B, R).

    >>> take_first(torch.tensor([[0.3, 0.1, 0.2], [torch.inf, 0.5, torch.inf]]), torch.tensor([2, 2]))
    tensor([[False,  True,  True],
            [False,  True, False]])
    """
    marked = torch.zeros_like(order, dtype=torch.bool)
    most = min(int(counts.max()), order.shape[1]) if order.numel() else 0
    if most == 0:
        return marked
    first = order.topk(most, dim=1, largest=False, sorted=True)
    taken = torch.arange(most, device=counts.device) < counts[:, None]
    return marked.scatter_(1, first.indices, taken & first.values.isfinite())
