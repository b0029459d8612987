"""Initialization of a linear head from its input features: principal components, whitening, LDA.

On frozen features, a random matrix loses information that training has to recover. A rotation to the directions of
largest variance keeps it, and dividing these by a power of their singular values balances them. With labels, dividing
by the variation within classes is better still: see `kinfold.models.linear_maps`.
"""

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from kinfold import registry
from kinfold.models.heads import Residual
from kinfold.models.linear_maps import POWERS, SUPERVISED, LinearMap, LinearMapKind, fit_linear_map
from kinfold.models.moments import compute_moments

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
    head: nn.Module,
    features: Tensor | PrincipalComponents,
    how: LinearMapKind,
    length: float = 1.0,
    *,
    labels: Tensor | None = None,
    shrinkage: float | None = None,
) -> nn.Module:
    """Set weight and bias of a linear head to a map that is computed from features x.

    Without labels it computes c s^-p V^T (x - mean): V and s are the principal directions and singular values of the
    centered features, the largest first. "within-whiten", "lda" and "plda" divide by the variation within classes
    instead. The sign of each direction makes its largest entry positive, so that equal features give equal heads.

    Args:
        head: A linear layer with bias, the head "residual", or a head with a method `initialize(features, how)`, which
            is then called.
        features: Features (N, width), or their `compute_principal_components`.
        how: "pca" (p = 0), "half-whiten" (p = 1/2), "whiten" (p = 1), "within-whiten", "lda" or "plda"; see
            `kinfold.models.linear_maps.fit_linear_map`.
        length: Root mean square norm of the outputs, which sets c.
        labels: For "within-whiten", "lda" and "plda": the class 0..C-1 of each row, (N,).
        shrinkage: Share of the covariance that is replaced by a multiple of the identity; 0 if left out, but 0.5 for
            "within-whiten", "lda" and "plda".

    Returns:
        The head.

    Raises:
        ValueError: The head is not linear or has no bias, the features have too few directions for it, or labels are
            missing.

    Examples:
        >>> rows = torch.tensor([[3.0, 1.0], [-3.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
        >>> initialize(nn.Linear(2, 1), rows, "pca")(rows).flatten().round(decimals=3)
        tensor([ 1.4140, -1.4140,  0.0000,  0.0000], grad_fn=<RoundBackward1>)
    """
    registry.check_known("start", how, get_args(LinearMapKind))
    if how in SUPERVISED and labels is None:
        raise ValueError(f"{how!r} is computed from classes: give labels=, the class of each row")
    if not 0 < length < float("inf"):
        raise ValueError(f"length is the root mean square norm of the outputs, a positive number; got {length}")
    if isinstance(head, Residual):
        initialize(head.linear, features, how, length, labels=labels, shrinkage=shrinkage)
        return head
    initialize_head = getattr(head, "initialize", None)
    if initialize_head is not None:
        if length != 1:
            raise ValueError(f"{type(head).__name__} is initialized to length 1; leave length out")
        if how in SUPERVISED or shrinkage:
            raise ValueError(f"{type(head).__name__} starts from {', '.join(POWERS)} without shrinkage only")
        initialize_head(features, how)
        return head
    if not isinstance(head, nn.Linear):
        raise ValueError(
            f"only linear heads can be initialized from principal components, this one is a {type(head).__name__}"
        )
    if head.bias is None:
        raise ValueError("the mean of the features is removed through the bias, and this head has none: bias=True")
    if how in SUPERVISED or shrinkage:
        if isinstance(features, PrincipalComponents):
            raise ValueError("labels and shrinkage need the features themselves, not their principal components")
        return _set_linear_map(head, features, how, length, labels, shrinkage)
    dim, width = head.weight.shape
    components = features if isinstance(features, PrincipalComponents) else compute_principal_components(features)
    if len(components.mean) != width:
        raise ValueError(f"expected features of shape (N, {width}), got (N, {len(components.mean)})")
    if dim > width:
        raise ValueError(f"{width} features have no {dim} principal components; choose dim <= {width}")
    if dim > components.rank:
        raise ValueError(
            f"the {components.count} features vary in {components.rank} directions only, too few for dim={dim}; "
            f"choose dim <= {components.rank} (--set model.dim={components.rank} on the command line) or give more "
            "features"
        )
    values, directions = components.values[:dim], components.directions[:dim]
    scales = values ** -POWERS[how]
    scales *= length * (components.count / (values * scales).square().sum()).sqrt()
    weight = scales[:, None] * directions
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(-weight @ components.mean)
    return head


def _set_linear_map(
    head: nn.Linear,
    features: Tensor,
    how: LinearMapKind,
    length: float,
    labels: Tensor | None,
    shrinkage: float | None,
) -> nn.Linear:
    dim, width = head.weight.shape
    if features.ndim != 2 or features.shape[1] != width:
        raise ValueError(f"expected features of shape (N, {width}), got {tuple(features.shape)}")
    moments = compute_moments(features, labels if how in SUPERVISED else None)
    linear_map = fit_linear_map(moments, how, dim, shrinkage)
    spread = (linear_map.weight @ moments.total_covariance() * linear_map.weight).sum()  # mean squared norm
    load_linear_map(head, linear_map.scale(float(length / spread.sqrt())))
    return head


def load_linear_map(head: nn.Linear, linear_map: LinearMap) -> None:
    """Copy weight and bias of a map into a linear layer with bias."""
    with torch.no_grad():
        head.weight.copy_(linear_map.weight)
        head.bias.copy_(linear_map.bias)


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
