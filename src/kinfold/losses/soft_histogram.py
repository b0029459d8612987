"""Differentiable histograms: each value is split between its two nearest nodes."""

from typing import Any

import torch
from torch import Tensor

from kinfold.pairs.masks import mask_to_float
from kinfold.pairs.transforms import is_transformed


def soft_histogram(positions: Tensor, mask: Tensor, nodes: int) -> Tensor:
    """Weight of the masked entries of each row on the nodes 0, 1, .., nodes - 1.

    An entry at position t adds 1 - (t - floor t) to the node below and the rest to the node above. Positions outside
    the nodes count for the nearest node, without gradient.

    Args:
        positions: Positions of the entries, (B, R).
        mask: Boolean (B, R).
        nodes: Number of nodes.

    Returns:
        (B, nodes).

    Examples:
        >>> soft_histogram(torch.tensor([[0.25, 2.0]]), torch.tensor([[True, True]]), 3)
        tensor([[0.7500, 0.2500, 1.0000]])
    """
    if is_transformed():
        return _histogram(positions, mask, nodes)
    histogram: Tensor = _SoftHistogram.apply(positions, mask, nodes)  # type: ignore[no-untyped-call]
    return histogram


def _histogram(positions: Tensor, mask: Tensor, nodes: int) -> Tensor:
    outside = (positions <= 0) | (positions >= nodes - 1)
    inside = torch.where(outside, positions.detach().clamp(0, nodes - 1), positions)
    lower = inside.detach().long().clamp(0, max(nodes - 2, 0))
    weight = mask_to_float(mask, positions)
    upper_share = (inside - lower) * weight
    counts = torch.zeros_like(positions[:, :1]).expand(-1, nodes + 1)
    return counts.scatter_add(1, lower, weight - upper_share).scatter_add(1, lower + 1, upper_share)[:, :nodes]


def _lower_node(inside: Tensor, nodes: int) -> Tensor:
    """The node at or below each position. NaN, whose integer is below all nodes, also gets a node."""
    return inside.long().clamp_(0, max(nodes - 2, 0))


class _SoftHistogram(torch.autograd.Function):
    """Linear between nodes: the derivative of an entry is the difference of the outer gradients at its two nodes."""

    @staticmethod
    def forward(positions: Tensor, mask: Tensor, nodes: int) -> Tensor:
        inside = positions.clamp(0, nodes - 1)
        lower = _lower_node(inside, nodes)
        weight = mask_to_float(mask, positions)
        upper_share = (inside - lower) * weight
        counts = torch.zeros(positions.shape[0], nodes + 1, dtype=positions.dtype, device=positions.device)
        counts.scatter_add_(1, lower, weight - upper_share)
        counts[:, 1:].scatter_add_(1, lower, upper_share)
        return counts[:, :nodes].contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        positions, mask, nodes = inputs
        ctx.save_for_backward(positions, mask)
        ctx.nodes = nodes

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        positions, mask = ctx.saved_tensors
        step = torch.nn.functional.pad(outer[0].diff(dim=1), (0, 1))  # (B, nodes), zero after the last node
        lower = _lower_node(positions, ctx.nodes)
        is_inside = mask & (positions > 0) & (positions < ctx.nodes - 1)
        return torch.where(is_inside, step.gather(1, lower), 0.0), None, None
