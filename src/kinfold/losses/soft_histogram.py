"""Differentiable histograms: each value is split between its two nearest nodes."""

import torch
from torch import Tensor

from kinfold.pairs.fast_function import FastFunction, Tensors, Wanted
from kinfold.pairs.masks import mask_to_float


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
    histogram: Tensor = _SoftHistogram(nodes)(positions, mask)
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


class _SoftHistogram(FastFunction):
    """Linear between nodes: the derivative of an entry is the difference of the outer gradients at its two nodes."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def compute(self, inputs: tuple[Tensor, Tensor], wanted: Wanted) -> tuple[Tensor, Tensors]:
        positions, mask = inputs
        inside = positions.clamp(0, self._nodes - 1)
        lower = _lower_node(inside, self._nodes)
        weight = mask_to_float(mask, positions)
        upper_share = (inside - lower) * weight
        counts = torch.zeros(positions.shape[0], self._nodes + 1, dtype=positions.dtype, device=positions.device)
        counts.scatter_add_(1, lower, weight - upper_share)
        counts[:, 1:].scatter_add_(1, lower, upper_share)
        return counts[:, : self._nodes].contiguous(), []

    def differentiate(
        self, inputs: tuple[Tensor, Tensor], kept: Tensors, outer: tuple[Tensor], wanted: Wanted
    ) -> Tensors:
        positions, mask = inputs
        step = torch.nn.functional.pad(outer[0].diff(dim=1), (0, 1))  # (B, nodes), zero after the last node
        lower = _lower_node(positions, self._nodes)
        is_inside = mask & (positions > 0) & (positions < self._nodes - 1)
        return [torch.where(is_inside, step.gather(1, lower), 0.0), None]

    def compute_plainly(self, positions: Tensor, mask: Tensor) -> Tensor:
        return _histogram(positions, mask, self._nodes)
