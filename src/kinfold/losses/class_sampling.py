"""Sampled classes: all classes of a batch and a random share of the others (Partial FC, An et al., CVPR 2022).

The gradient of the class vectors is sparse: it has the rows of the sampled classes only.
"""

import math
from typing import Any

import torch
from torch import Tensor

# share of the classes from which a permutation of all is faster than drawing until there are enough different ones
_PERMUTED_SHARE = 0.25


def draw_classes(present: Tensor, num_classes: int, share: float, generator: torch.Generator) -> Tensor:
    """Draw classes for one batch: those that are present and a share of the others, without replacement.

    Args:
        present: The different classes of the batch, ascending, (P,).
        num_classes: Number of all classes.
        share: Share of the other classes, above 0 and at most 1; at least one of them is drawn.
        generator: Source of random numbers.

    Returns:
        Ascending class numbers, (n,).

    Examples:
        >>> draw_classes(torch.tensor([3]), 5, 1.0, torch.Generator())
        tensor([0, 1, 2, 3, 4])
        >>> draw_classes(torch.tensor([3, 7]), 1000, 0.1, torch.Generator()).shape
        torch.Size([102])
    """
    others = num_classes - present.shape[0]
    # share * others may be rounded to just above an integer
    number = min(others, math.ceil(share * others - 1e-9 * others))
    # positions among the other classes; classes are then counted past those that are present
    position = _draw_positions(others, number, generator).to(present.device)
    skipped = torch.searchsorted(present - torch.arange(len(present), device=present.device), position, right=True)
    return torch.cat([present, position + skipped]).sort().values


def _draw_positions(total: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw different integers below `total`; every set of them is equally likely."""
    if number == total:
        return torch.arange(total)
    if number > _PERMUTED_SHARE * total:
        return torch.randperm(total, generator=generator, device=generator.device)[:number].cpu()
    drawn = torch.empty(0, dtype=torch.int64)
    while len(drawn) < number:
        # most of the draws are different; a set of too many is cut at random
        more = int(1.2 * (number - len(drawn))) + 16
        draws = torch.randint(total, (more,), generator=generator, device=generator.device).cpu()
        drawn = torch.unique(torch.cat([drawn, draws]))
    return drawn[torch.randperm(len(drawn), generator=generator, device=generator.device).cpu()[:number]]


def select_rows(parameter: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of a parameter; the gradient is sparse, with these rows.

    Args:
        parameter: (C, ...).
        rows: Ascending and different, (n,).

    Examples:
        >>> weight = torch.zeros(4, 2, requires_grad=True)
        >>> select_rows(weight, torch.tensor([1, 3])).sum().backward()
        >>> weight.grad.is_sparse, weight.grad.to_dense()[:, 0]
        (True, tensor([0., 1., 0., 1.]))
    """
    if not parameter.is_leaf:  # operations before this one do not take a sparse gradient
        return parameter[rows]
    selected: Tensor = _SelectRows.apply(parameter, rows)  # type: ignore[no-untyped-call]
    return selected


class _SelectRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = parameter.shape
        return parameter[rows]

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            return outer[0].new_zeros(ctx.shape).index_copy(0, rows, outer[0]), None
        if outer[0].device.type not in ("cpu", "cuda"):
            raise NotImplementedError(
                f"class_share below 1 needs sparse gradients, which torch does not have on {outer[0].device.type!r}: "
                "train on the CPU or on CUDA, or set class_share to 1"
            )
        return torch.sparse_coo_tensor(rows[None], outer[0], ctx.shape, is_coalesced=True, check_invariants=False), None
