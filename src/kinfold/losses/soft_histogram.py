"""Histograms with a gradient: each value is shared by its two nearest nodes."""

from typing import Any

import torch
from torch import Tensor

from kinfold.pairs.masks import number
from kinfold.pairs.transforms import is_transformed


def soft_histogram(place: Tensor, mask: Tensor, nodes: int) -> Tensor:
    """(B, nodes) weight of the masked entries of each row on the nodes 0, 1, .., nodes - 1.

    An entry at place t gives 1 - (t - floor t) to the node below and the rest to the node above. Places outside the
    nodes count for the nearest one, without gradient.

    >>> soft_histogram(torch.tensor([[0.25, 2.0]]), torch.tensor([[True, True]]), 3)
    tensor([[0.7500, 0.2500, 1.0000]])
    """
    if is_transformed():
        return _histogram(place, mask, nodes)
    histogram: Tensor = _SoftHistogram.apply(place, mask, nodes)  # type: ignore[no-untyped-call]
    return histogram


def _histogram(place: Tensor, mask: Tensor, nodes: int) -> Tensor:
    outside = (place <= 0) | (place >= nodes - 1)
    inside = torch.where(outside, place.detach().clamp(0, nodes - 1), place)
    lower = inside.detach().long().clamp(0, max(nodes - 2, 0))
    weight = number(mask, place)
    upper_share = (inside - lower) * weight
    counts = torch.zeros_like(place[:, :1]).expand(-1, nodes + 1)
    return counts.scatter_add(1, lower, weight - upper_share).scatter_add(1, lower + 1, upper_share)[:, :nodes]


def _lower_node(inside: Tensor, nodes: int) -> Tensor:
    """The node at or below each place; some node also where a place is NaN, whose integer is below all nodes."""
    return inside.long().clamp_(0, max(nodes - 2, 0))


class _SoftHistogram(torch.autograd.Function):
    """Linear between nodes: the slope of an entry is the difference of the outer gradients at its two nodes, so that
    only the entry's lower node has to be remembered."""

    @staticmethod
    def forward(place: Tensor, mask: Tensor, nodes: int) -> Tensor:
        inside = place.clamp(0, nodes - 1)
        lower = _lower_node(inside, nodes)
        weight = number(mask, place)
        upper_share = (inside - lower) * weight
        rows = place.shape[0]
        counts = torch.zeros(rows, nodes + 1, dtype=place.dtype, device=place.device)
        counts.scatter_add_(1, lower, weight - upper_share)
        counts[:, 1:].scatter_add_(1, lower, upper_share)
        return counts[:, :nodes].contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        place, mask, nodes = inputs
        ctx.save_for_backward(place, mask)
        ctx.nodes = nodes

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        place, mask = ctx.saved_tensors
        step = torch.nn.functional.pad(outer[0].diff(dim=1), (0, 1))  # (B, nodes), zero after the last node
        lower = _lower_node(place, ctx.nodes)
        live = mask & (place > 0) & (place < ctx.nodes - 1)
        return torch.where(live, step.gather(1, lower), 0.0), None, None
