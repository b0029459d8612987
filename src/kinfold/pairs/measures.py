"""Similarities and distances of embeddings: matrices (B, R) between two sets, or row by row.

Every measure has finite gradients everywhere, also where two embeddings are equal or one of them is zero. With
`rows=True` row i of `x` is compared with row i of `y`, and the result is (B,).
"""

import torch
from torch import Tensor
from torch.nn import functional

from kinfold.pairs.fast_function import FastFunction, Tensors, Wanted
from kinfold.pairs.near_pairs import PairFilter, near_limit, recompute_near

_ZERO_NORM = 1e-12


def normalize(x: Tensor) -> Tensor:
    """Scale rows to length one. This is the only normalization of embeddings in the package.

    x / |x|, and zero without gradient for a row that is zero (no entry above 1e-12).

    Unlike `torch.nn.functional.normalize`, rows whose squares overflow or underflow are also scaled to length one: they
    are first divided by their largest entry.

    Args:
        x: (..., d), floating point.

    Returns:
        (..., d).

    Examples:
        >>> normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e30, 4e30]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000],
                [0.6000, 0.8000]])
    """
    if x.shape[-1] == 0:
        return x
    if x.device.type != "cpu":  # looking at the lengths would make the host wait for the device
        return _normalize(x)
    unit: Tensor = _NormalizeRows()(x)
    return unit


def _normalize(x: Tensor) -> Tensor:
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    is_zero = largest <= _ZERO_NORM
    scaled = x / largest.masked_fill(is_zero, 1.0)
    length: Tensor = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return (scaled / length.masked_fill(is_zero, 1.0)).masked_fill(is_zero, 0.0)


def measure_lengths(x: Tensor) -> Tensor:
    """Length of each row, (B,), without overflow; zero without gradient for a row that is zero.

    Args:
        x: (B, d).

    Examples:
        >>> measure_lengths(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([5., 0.])
    """
    if x.shape[-1] == 0:
        return x.sum(dim=-1)
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    is_zero = largest <= _ZERO_NORM
    scaled = x / largest.masked_fill(is_zero, 1.0)
    length: Tensor = torch.linalg.vector_norm(scaled, dim=-1)
    return (length * largest.squeeze(-1)).masked_fill(is_zero.squeeze(-1), 0.0)


def _has_usual_lengths(length: Tensor) -> bool:
    """Whether x / |x| can be computed directly: no length is near zero or overflow."""
    if length.numel() == 0:
        return True
    low, high = length.aminmax()
    return float(low) > 1e-6 and float(high) < 1e15


class _NormalizeRows(FastFunction):
    """`_normalize` in two passes over the data each way, for rows of usual length."""

    def compute(self, inputs: tuple[Tensor], wanted: Wanted) -> tuple[Tensor, Tensors]:
        (x,) = inputs
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        if not _has_usual_lengths(length):
            return _normalize(x), []
        inverse = length.reciprocal_()
        unit = x * inverse
        return unit, [unit, inverse]

    def differentiate(
        self, inputs: tuple[Tensor], kept: tuple[Tensor, ...], outer: tuple[Tensor], wanted: Wanted
    ) -> Tensors:
        if not kept:
            with torch.enable_grad():
                leaf = inputs[0].detach().requires_grad_()
                return torch.autograd.grad(_normalize(leaf), leaf, outer[0])
        unit, inverse = kept
        along = torch.linalg.vecdot(outer[0], unit).unsqueeze(-1)
        return [torch.addcmul(outer[0], unit, along, value=-1.0).mul_(inverse)]

    def compute_plainly(self, x: Tensor) -> Tensor:
        return _normalize(x)


def dot(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """Dot product x . y.

    Args:
        x: (B, d).
        y: (R, d), or (B, d) with `rows`.
        rows: Whether to compare row by row.

    Returns:
        (B, R), or (B,) with `rows`.
    """
    return (x * y).sum(dim=-1) if rows else x @ y.T


def cosine(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """Cosine similarity x . y / (|x| |y|); arguments as in `dot`.

    Examples:
        >>> cosine(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 5.0], [-1.0, 0.0]]))
        tensor([[ 1.,  0., -1.]])
    """
    unit = normalize(x)
    return dot(unit, unit if y is x else normalize(y), rows=rows)


def squared_euclidean(x: Tensor, y: Tensor, *, rows: bool = False, pair_filter: PairFilter | None = None) -> Tensor:
    """Squared Euclidean distance |x - y|^2.

    The matrix comes from one product, |x|^2 + |y|^2 - 2 x.y, after the mean of `y` is subtracted from both: distances
    do not depend on it, and smaller numbers lose fewer digits. Pairs that nearly coincide are computed from
    differences.

    Args:
        x, y, rows: As in `dot`.
        pair_filter: Says which near pairs are used, see `recompute_near`; the others may stay inexact.

    Returns:
        (B, R), or (B,) with `rows`.
    """
    if rows:
        return (x - y).square().sum(dim=-1)
    mean = y.detach().mean(dim=0) if y.shape[0] else y.new_zeros(y.shape[-1])
    left = x - mean
    right = left if y is x else y - mean
    length = left.square().sum(dim=-1)
    lengths = length[:, None] + (length if y is x else right.square().sum(dim=-1))
    squared = torch.addmm(lengths, left, right.T, alpha=-2.0).clamp(min=0.0)
    return recompute_near(squared, x, y, near_limit(length.detach()[:, None], x.dtype), pair_filter)


def euclidean(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """Euclidean distance |x - y|; arguments as in `dot`."""
    return safe_sqrt(squared_euclidean(x, y, rows=rows))


def sphere_distance(similarity: Tensor) -> Tensor:
    """Euclidean distance of unit vectors from their cosine: sqrt(2 - 2 cos)."""
    return safe_sqrt(2.0 - 2.0 * similarity)


def squared_sphere_distance(x: Tensor, y: Tensor, pair_filter: PairFilter | None = None) -> Tensor:
    """Squared distances 2 - 2 x.y of unit vectors (B, R), from one fused product.

    Pairs that nearly coincide are computed from differences; `pair_filter` as in `recompute_near`.
    """
    squared = torch.addmm(x.new_full((1, 1), 2.0), x, y.T, alpha=-2.0)
    return recompute_near(squared, x, y, near_limit(1.0, x.dtype), pair_filter)


def snr(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """Noise-to-signal ratio Var(x - y) / Var(x) over the features (Yuan et al., 2019); arguments as in `dot`.

    Not symmetric. The row of an anchor without variance is zero.
    """
    centered = center(x)
    return snr_of_centered(centered, centered if y is x else center(y), rows=rows)


def center(x: Tensor) -> Tensor:
    """Subtract from each row its mean over the features."""
    return x - x.mean(dim=-1, keepdim=True)


def snr_of_centered(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """`snr` of rows that are already centered: |x - y|^2 / |x|^2."""
    if rows:
        return squared_euclidean(x, y, rows=True) * safe_reciprocal(torch.linalg.vecdot(x, x))
    # |x - y|^2 / |x|^2 = 1 + |y|^2 / |x|^2 - 2 x.y / |x|^2
    if y is x:  # the squared lengths are the diagonal of the product
        product = x @ x.T
        signal = product.diagonal()
        inverse = safe_reciprocal(signal)[:, None]
        return (inverse > 0).to(x.dtype) + inverse * torch.add(signal, product, alpha=-2.0)
    inverse = safe_reciprocal(torch.linalg.vecdot(x, x))[:, None]
    offset = (inverse > 0).to(x.dtype) + inverse * torch.linalg.vecdot(y, y)
    return torch.addmm(offset, x * inverse, y.T, alpha=-2.0)


def safe_reciprocal(signal: Tensor) -> Tensor:
    """1 / signal, and 0 where the signal is zero."""
    is_zero = signal <= torch.finfo(signal.dtype).eps ** 2
    return torch.where(is_zero, 0.0, 1.0 / signal.masked_fill(is_zero, 1.0))


def safe_sqrt(squared: Tensor) -> Tensor:
    """Square root whose gradient at zero is zero instead of infinite."""
    # No gradient passes below the bound, whose root is one unit of rounding, too small to matter. The backward pass of
    # `clamp` would take five times as long.
    bound = torch.finfo(squared.dtype).eps ** 2
    return functional.threshold(squared, bound, bound).sqrt_()
