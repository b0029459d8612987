"""Class vectors that a loss owns, and the labels that index them."""

from typing import Literal

import torch
from torch import Tensor, nn


def check_class_range(labels: Tensor, num_classes: int) -> None:
    """Losses with parameters per class index them by label: 0..C-1 only."""
    if torch.compiler.is_compiling() or labels.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(labels))
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"labels run from {low} to {high}, but this loss has parameters for the classes 0..{num_classes - 1} only; "
            "kinfold.pairs.reindex(labels) gives labels in that range"
        )


def new_proxies(
    *shape: int, init: Literal["normal", "uniform"], scale: float, generator: torch.Generator | None
) -> nn.Parameter:
    """A parameter of class vectors from an explicit generator (seed 0 where none is given)."""
    if any(size < 1 for size in shape):
        raise ValueError(f"num_classes, dim and the number of centres must be at least 1, got {shape}")
    source = torch.Generator().manual_seed(0) if generator is None else generator
    values = torch.empty(shape, device=source.device)
    if init == "normal":
        values.normal_(0.0, scale, generator=source)
    else:
        values.uniform_(-scale, scale, generator=source)
    return nn.Parameter(values)
