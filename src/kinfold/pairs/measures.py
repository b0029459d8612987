"""How close two embeddings are: matrices (B, R) between two sets, and the same measure row by row.

Every measure has finite gradients everywhere, also where two embeddings coincide or one of them is zero.
`rows=True` compares row i of `x` with row i of `y` and gives (B,).
"""

from typing import Any

import torch
from torch import Tensor

from kinfold.pairs.cancellation import Counted, near_limit, recompute_near
from kinfold.pairs.transforms import is_transformed

_ZERO_NORM = 1e-12


def normalize(x: Tensor) -> Tensor:
    """Rows scaled to length one; a zero row stays zero and gets no gradient.

    Where squares would overflow or vanish, each row is first divided by its largest entry.
    """
    if x.shape[-1] == 0:
        return x
    if is_transformed():
        return _normalize(x)
    unit: Tensor = _Normalize.apply(x)  # type: ignore[no-untyped-call]
    return unit


def _normalize(x: Tensor) -> Tensor:
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    zero = largest <= _ZERO_NORM
    scaled = x / largest.masked_fill(zero, 1.0)
    length: Tensor = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return (scaled / length.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)


class _Normalize(torch.autograd.Function):
    """The same in two passes over the data each way, for rows of ordinary length."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        low, high = length.aminmax() if length.numel() else (length.sum(), length.sum())
        ctx.plain = not (float(low) > 1e-6 and float(high) < 1e15) and length.numel() > 0
        if ctx.plain:
            ctx.save_for_backward(x)
            return _normalize(x)
        inverse = length.reciprocal_()
        unit = x * inverse
        ctx.save_for_backward(x, unit, inverse)
        return unit

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        x, *kept = ctx.saved_tensors
        graph = torch.is_grad_enabled()  # of the gradient itself
        if ctx.plain or graph:
            with torch.enable_grad():
                view = x.view_as(x) if graph else x.detach().requires_grad_()
                return torch.autograd.grad(_normalize(view), view, outer[0], create_graph=graph)
        unit, inverse = kept
        along = torch.linalg.vecdot(outer[0], unit).unsqueeze(-1)
        return torch.addcmul(outer[0], unit, along, value=-1.0).mul_(inverse)


def dot(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """x . y"""
    return (x * y).sum(dim=-1) if rows else x @ y.T


def cosine(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """x . y / (|x| |y|)

    >>> cosine(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 5.0], [-1.0, 0.0]]))
    tensor([[ 1.,  0., -1.]])
    """
    unit = normalize(x)
    return dot(unit, unit if y is x else normalize(y), rows=rows)


def squared_euclidean(x: Tensor, y: Tensor, *, rows: bool = False, counted: Counted | None = None) -> Tensor:
    """|x - y|^2

    The matrix comes from one product, |x|^2 + |y|^2 - 2 x.y, after the mean of `y` is taken from both: distances do not
    depend on it, and the difference of large numbers loses less. Pairs that nearly coincide are computed from
    differences; `counted` says which of them matter (`recompute_near`).
    """
    if rows:
        return (x - y).square().sum(dim=-1)
    centre = y.detach().mean(dim=0) if y.shape[0] else y.new_zeros(y.shape[-1])
    same = y is x
    left = x - centre
    right = left if same else y - centre
    length = left.square().sum(dim=-1)
    lengths = length[:, None] + (length if same else right.square().sum(dim=-1))
    squared = torch.addmm(lengths, left, right.T, alpha=-2.0).clamp(min=0.0)
    return recompute_near(squared, x, y, near_limit(length.detach()[:, None], x.dtype), counted)


def euclidean(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """|x - y|"""
    return root(squared_euclidean(x, y, rows=rows))


def sphere_distance(similarity: Tensor) -> Tensor:
    """Euclidean distance of unit vectors from their cosine: sqrt(2 - 2 cos)."""
    return root(2.0 - 2.0 * similarity)


def sphere_squared(x: Tensor, y: Tensor, counted: Counted | None = None) -> Tensor:
    """Squared distances 2 - 2 x.y of rows that have length one already, from one fused product.

    Pairs that nearly coincide are computed from differences; `counted` says which of them matter (`recompute_near`).
    """
    squared = torch.addmm(x.new_full((1, 1), 2.0), x, y.T, alpha=-2.0)
    return recompute_near(squared, x, y, near_limit(1.0, x.dtype), counted)


def snr(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """Var(x - y) / Var(x) over the features: the noise that turns x into y against the signal x (Yuan et al., 2019).

    Not symmetric. An anchor without variance has no signal to compare with: its row is zero.
    """
    same = y is x
    x = centred(x)
    y = x if same else centred(y)
    return centred_snr(x, y, rows=rows)


def centred(x: Tensor) -> Tensor:
    """Rows without their mean over the features."""
    return x - x.mean(dim=-1, keepdim=True)


def centred_unit(x: Tensor) -> Tensor:
    """`centred(normalize(x))`, holding one copy of the rows instead of two."""
    if is_transformed() or x.numel() == 0:
        return centred(normalize(x))
    found: Tensor = _CentredUnit.apply(x)  # type: ignore[no-untyped-call]
    return found


class _CentredUnit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        low, high = length.aminmax()
        ctx.plain = not (float(low) > 1e-6 and float(high) < 1e15)
        if ctx.plain:
            ctx.save_for_backward(x)
            return centred(_normalize(x))
        inverse = length.reciprocal_()
        found = x * inverse
        mean = found.mean(dim=-1, keepdim=True)
        found.sub_(mean)
        ctx.save_for_backward(x, found, mean, inverse)
        return found

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        x, *kept = ctx.saved_tensors
        graph = torch.is_grad_enabled()  # of the gradient itself
        if ctx.plain or graph:
            with torch.enable_grad():
                view = x.view_as(x) if graph else x.detach().requires_grad_()
                return torch.autograd.grad(centred(_normalize(view)), view, outer[0], create_graph=graph)
        found, mean, inverse = kept
        # the unit row is found + mean, and the centred gradient is orthogonal to a constant row
        gradient = centred(outer[0])
        along = torch.linalg.vecdot(gradient, found).unsqueeze(-1)
        return gradient.addcmul_(found, along, value=-1.0).sub_(along.mul_(mean)).mul_(inverse)


def centred_snr(x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
    """`snr` of rows that are centred already: |x - y|^2 / |x|^2."""
    if rows:
        return squared_euclidean(x, y, rows=True) * inverse_signal(torch.linalg.vecdot(x, x))
    # |x - y|^2 / |x|^2 = 1 + |y|^2 / |x|^2 - 2 x.y / |x|^2
    if y is x:  # the lengths stand in the product itself
        product = x @ x.T
        signal = product.diagonal()
        inverse = inverse_signal(signal)[:, None]
        return (inverse > 0).to(x.dtype) + inverse * torch.add(signal, product, alpha=-2.0)
    inverse = inverse_signal(torch.linalg.vecdot(x, x))[:, None]
    offset = (inverse > 0).to(x.dtype) + inverse * torch.linalg.vecdot(y, y)
    return torch.addmm(offset, x * inverse, y.T, alpha=-2.0)


def inverse_signal(signal: Tensor) -> Tensor:
    """1 / signal, and 0 where there is none."""
    silent = signal <= torch.finfo(signal.dtype).eps ** 2
    return torch.where(silent, 0.0, 1.0 / signal.masked_fill(silent, 1.0))


def root(squared: Tensor) -> Tensor:
    """Square root whose gradient is zero, not infinite, at zero."""
    # clamp passes no gradient below its bound; the bound's root is one unit of rounding, too small to matter
    return squared.clamp(min=torch.finfo(squared.dtype).eps ** 2).sqrt()
