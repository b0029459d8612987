"""Initialization of a linear head from the principal components of its input features.

On frozen features, a random matrix loses information that training has to recover. A rotation to the directions of
largest variance keeps it, and dividing these by a power of their singular values balances them.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from kinfold import registry

Initialization = Literal["pca", "half-whiten", "whiten"]
POWERS: dict[str, float] = {"pca": 0.0, "half-whiten": 0.5, "whiten": 1.0}
_ROWS = 8192  # rows per chunk in float64


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """Principal components of features, float64.

    Attributes:
        count: N, the number of features.
        mean: (width,).
        values: Singular values in descending order, (k,) with k = min(N, width).
        directions: (k, width).
        rank: Number of singular values that are larger than rounding errors.
    """

    count: int
    mean: Tensor
    values: Tensor
    directions: Tensor
    rank: int


def initialize(
    head: nn.Module, features: Tensor | PrincipalComponents, how: Initialization, length: float = 1.0
) -> nn.Module:
    """Set weight and bias of a linear head so that it computes c s^-p V^T (x - mean) for features x.

    V and s are the principal directions and singular values of the centered features, the largest first. The sign of
    each direction makes its largest entry positive, so that equal features give equal heads.

    Args:
        head: A linear layer with bias, or a head with a method `initialize(features, how)`, which is then called.
        features: Features (N, width), or their `compute_principal_components`.
        how: "pca" (p = 0), "half-whiten" (p = 1/2) or "whiten" (p = 1).
        length: Root mean square norm of the outputs, which sets c.

    Returns:
        The head.

    Raises:
        ValueError: The head is not linear or has no bias, or the features have too few directions for it.

    Examples:
        >>> rows = torch.tensor([[3.0, 1.0], [-3.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
        >>> initialize(nn.Linear(2, 1), rows, "pca")(rows).flatten().round(decimals=3)
        tensor([ 1.4140, -1.4140,  0.0000,  0.0000], grad_fn=<RoundBackward1>)
    """
    if how not in get_args(Initialization):
        raise ValueError(f"unknown start {how!r}{registry.suggest(how, POWERS)}; there are {', '.join(POWERS)}")
    if not 0 < length < float("inf"):
        raise ValueError(f"length is the root mean square norm of the outputs, a positive number; got {length}")
    initialize_head = getattr(head, "initialize", None)
    if initialize_head is not None:
        if length != 1:
            raise ValueError(f"{type(head).__name__} is initialized to length 1; leave length out")
        initialize_head(features, how)
        return head
    if not isinstance(head, nn.Linear):
        raise ValueError(
            f"only linear heads can be initialized from principal components, this one is a {type(head).__name__}"
        )
    if head.bias is None:
        raise ValueError("the mean of the features is removed through the bias, and this head has none: bias=True")
    dim, width = head.weight.shape
    components = features if isinstance(features, PrincipalComponents) else compute_principal_components(features)
    if len(components.mean) != width:
        raise ValueError(f"expected features of shape (N, {width}), got (N, {len(components.mean)})")
    if dim > width:
        raise ValueError(f"{width} features have no {dim} principal components; choose dim <= {width}")
    if dim > components.rank:
        raise ValueError(
            f"the {components.count} features vary in {components.rank} directions only, too few for dim={dim}; "
            f"choose dim <= {components.rank} or give more features"
        )
    values, directions = components.values[:dim], components.directions[:dim]
    scales = values ** -POWERS[how]
    scales *= length * (components.count / (values * scales).square().sum()).sqrt()
    weight = scales[:, None] * directions
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(-weight @ components.mean)
    return head


def compute_principal_components(features: Tensor) -> PrincipalComponents:
    """Compute the principal components of features (N, width); the cost grows with the smaller of N and width."""
    if features.ndim != 2 or len(features) < 2:
        raise ValueError(f"expected features of shape (N, width) with N >= 2, got {tuple(features.shape)}")
    features = features.detach()
    count, width = features.shape
    chunks = torch.split(features, _ROWS)
    mean = torch.stack([chunk.double().sum(dim=0) for chunk in chunks]).sum(dim=0) / count
    if not mean.isfinite().all():
        raise ValueError("the features have entries that are not finite")
    if count < width:
        centered = features.double() - mean
        squares, rows = torch.linalg.eigh(centered @ centered.T)
        values = squares.flip(0).clamp_min(0).sqrt()
        directions = rows.flip(1).T @ centered / values.clamp_min(torch.finfo(torch.float64).tiny)[:, None]
    else:
        scatter = mean.new_zeros(width, width)
        for chunk in chunks:
            centered = chunk.double() - mean
            scatter.addmm_(centered.T, centered)
        squares, columns = torch.linalg.eigh(scatter)
        values, directions = squares.flip(0).clamp_min(0).sqrt(), columns.flip(1).T
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    # squares were computed, so singular values below the root of the precision are noise
    noise = (width * torch.finfo(torch.float64).eps) ** 0.5
    if features.dtype == torch.float32:
        noise = max(noise, 4 * torch.finfo(torch.float32).eps)  # and so is the rounding of the features
    rank = int((values > values[0] * noise).sum())
    return PrincipalComponents(count, mean, values, directions * largest.sign(), rank)
