"""A linear head that starts from the principal components of the features it will see.

On frozen features a random matrix throws away what training then has to find again; a rotation to the directions of
largest variance keeps it, and dividing them by a power of their singular values evens them out.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from kinfold import registry

Initialization = Literal["pca", "half-whiten", "whiten"]
POWERS: dict[str, float] = {"pca": 0.0, "half-whiten": 0.5, "whiten": 1.0}
_ROWS = 8192  # of features in float64 at a time


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """Of `count` features: mean (width,), singular values (k,) in falling order, directions (k, width); float64.

    k is the smaller of count and width; `rank` of them stand for more than rounding.
    """

    count: int
    mean: Tensor
    values: Tensor
    directions: Tensor
    rank: int


def initialize(
    head: nn.Module, features: Tensor | PrincipalComponents, how: Initialization, length: float = 1.0
) -> nn.Module:
    """Set weight and bias of a linear head so that it gives c s^-p V^T (x - mean) for features x; returns the head.

    V, s: principal directions and singular values of `features` (N, width) less their mean, the largest first;
    p: 0 for "pca", 1/2 for "half-whiten", 1 for "whiten"; c: makes the root mean square norm of the outputs `length`.
    Each direction points to where its largest entry is positive, so that equal features give equal heads.
    What `principal_components` found may be given instead of the features. A head with a method `initialize` of its own
    does it by that.

    >>> rows = torch.tensor([[3.0, 1.0], [-3.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    >>> initialize(nn.Linear(2, 1), rows, "pca")(rows).flatten().round(decimals=3)
    tensor([ 1.4140, -1.4140,  0.0000,  0.0000], grad_fn=<RoundBackward1>)
    """
    if how not in get_args(Initialization):
        raise ValueError(f"unknown start {how!r}{registry.suggest(how, POWERS)}; there are {', '.join(POWERS)}")
    if not 0 < length < float("inf"):
        raise ValueError(f"length is the root mean square norm of the outputs, a positive number; got {length}")
    own = getattr(head, "initialize", None)
    if own is not None:
        if length != 1:
            raise ValueError(f"{type(head).__name__} has a start of its own, of length 1; leave length out")
        own(features, how)
        return head
    if not isinstance(head, nn.Linear):
        raise ValueError(f"only linear heads can start from principal components, this one is a {type(head).__name__}")
    if head.bias is None:
        raise ValueError("the mean of the features is removed through the bias, and this head has none: bias=True")
    dim, width = head.weight.shape
    found = features if isinstance(features, PrincipalComponents) else principal_components(features)
    if len(found.mean) != width:
        raise ValueError(f"expected features of shape (N, {width}), got (N, {len(found.mean)})")
    if dim > width:
        raise ValueError(f"{width} features have no {dim} principal components; choose dim <= {width}")
    if dim > found.rank:
        raise ValueError(
            f"the {found.count} features vary in {found.rank} directions only, too few for dim={dim}; "
            f"choose dim <= {found.rank} or give more features"
        )
    values, directions = found.values[:dim], found.directions[:dim]
    scales = values ** -POWERS[how]
    scales *= length * (found.count / (values * scales).square().sum()).sqrt()
    weight = scales[:, None] * directions
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(-weight @ found.mean)
    return head


def principal_components(features: Tensor) -> PrincipalComponents:
    """Of features (N, width), in time and memory of the smaller of N and width."""
    if features.ndim != 2 or len(features) < 2:
        raise ValueError(f"expected features of shape (N, width) with N >= 2, got {tuple(features.shape)}")
    features = features.detach()
    count, width = features.shape
    blocks = torch.split(features, _ROWS)
    mean = torch.stack([block.double().sum(dim=0) for block in blocks]).sum(dim=0) / count
    if not mean.isfinite().all():
        raise ValueError("the features have entries that are not finite")
    if count < width:
        centred = features.double() - mean
        squares, rows = torch.linalg.eigh(centred @ centred.T)
        values = squares.flip(0).clamp_min(0).sqrt()
        directions = rows.flip(1).T @ centred / values.clamp_min(torch.finfo(torch.float64).tiny)[:, None]
    else:
        scatter = mean.new_zeros(width, width)
        for block in blocks:
            centred = block.double() - mean
            scatter.addmm_(centred.T, centred)
        squares, columns = torch.linalg.eigh(scatter)
        values, directions = squares.flip(0).clamp_min(0).sqrt(), columns.flip(1).T
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    # squares are what was computed, so singular values below the root of the precision are noise
    noise = (width * torch.finfo(torch.float64).eps) ** 0.5
    if features.dtype == torch.float32:
        noise = max(noise, 4 * torch.finfo(torch.float32).eps)  # and so is the rounding of the features
    rank = int((values > values[0] * noise).sum())
    return PrincipalComponents(count, mean, values, directions * largest.sign(), rank)
