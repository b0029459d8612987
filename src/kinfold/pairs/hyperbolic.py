"""Hyperbolic distance: embeddings on the hyperboloid, where it is a function of one product.

An embedding is a tangent vector at the origin. The exponential map takes it into the Poincare ball, and the same point
of the hyperboloid (Nickel and Kiela, NIPS 2017 and ICML 2018) has the space-like part

    u = sinh(2 sqrt(c) |x|) x / |x|,    with the time-like part u_0 = sqrt(1 + |u|^2).

For two points m = u_0 v_0 - u.v - 1 is half of their squared Minkowski distance, and the distance is acosh(1 + m) /
sqrt(c). So the matrix of m is one product of tiles, and the rest is elementwise. Where two points nearly coincide the
product loses its digits, and m is computed from differences, (|u - v|^2 - (u_0 - v_0)^2) / 2.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfold.pairs.gather import gather_minkowski
from kinfold.pairs.measures import measure_lengths, normalize
from kinfold.pairs.near_pairs import PairFilter, list_near, near_limit, too_many_to_gather
from kinfold.pairs.row_function import RowResult, compute_rows
from kinfold.pairs.transforms import is_transformed

# sqrt(c) times the longest tangent vector: products of points this far out keep enough digits in float32
_MAX_REACH = 3.0


@dataclass(frozen=True)
class Hyperbolic:
    """The hyperbolic distance of embeddings that the exponential map takes into the Poincare ball.

    d(x, y) = acosh(1 + 2 c |p - q|^2 / ((1 - c |p|^2) (1 - c |q|^2))) / sqrt(c)
    p = tanh(sqrt(c) |x|) x / (sqrt(c) |x|), and q of y

    As in Ermolov et al., "Hyperbolic vision transformers", CVPR 2022, whose numbers are the defaults. Embeddings longer
    than the radius are shortened to it first (Guo et al., CVPR 2022), so that gradients do not vanish at the rim. A
    small distance is twice the Euclidean one.

    Args:
        curvature: c; the curvature of the ball is -c. A small one is close to the Euclidean distance.
        radius: Longest embedding.

    Raises:
        ValueError: A number is not positive, or radius sqrt(curvature) is above 3, where float32 has too few digits.

    Examples:
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> Hyperbolic().measure(x, x).round(decimals=4)
        tensor([[0.0000, 2.9163],
                [2.9163, 0.0000]])
    """

    curvature: float = 0.1
    radius: float = 2.3

    def __post_init__(self) -> None:
        for name in ("curvature", "radius"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if self.root * self.radius > _MAX_REACH:
            raise ValueError(
                f"radius={self.radius:g} with curvature={self.curvature:g}: float32 has too few digits that far "
                f"out; use a radius of at most {_MAX_REACH / self.root:.4g}"
            )

    @property
    def root(self) -> float:
        """sqrt(c)."""
        return math.sqrt(self.curvature)

    def lift(self, x: Tensor) -> Tensor:
        """Return the space-like parts u of embeddings x, (B, d). A zero row stays zero, without gradient."""
        length = measure_lengths(x).clamp(max=self.radius)
        return normalize(x) * torch.sinh(2.0 * self.root * length)[:, None]

    def flatten(self, u: Tensor) -> Tensor:
        """Return the embeddings, of at most the radius, that `lift` takes to u."""
        return normalize(u) * (torch.asinh(measure_lengths(u)) / (2.0 * self.root))[:, None]

    def to_distance(self, excess: Tensor) -> Tensor:
        """Return the distances of pairs from m."""
        return acosh_of_excess(excess) / self.root

    def measure(self, x: Tensor, y: Tensor, *, rows: bool = False) -> Tensor:
        """Distances of embeddings; arguments as in `kinfold.pairs.dot`."""
        u = self.lift(x)
        v = u if y is x else self.lift(y)
        if rows:
            i = torch.arange(u.shape[0], device=u.device)
            return self.to_distance(gather_minkowski(u, v, i, i))
        return self.to_distance(measure_excess(u, v))


def acosh_of_excess(excess: Tensor) -> Tensor:
    """acosh(1 + m), exact for small m; its gradient at zero is zero instead of infinite."""
    return compute_rows(excess, _compute_acosh, _compute_acosh_plainly)


def _measure_sinh(excess: Tensor) -> Tensor:
    """sinh of acosh(1 + m), sqrt(m (m + 2))."""
    return (excess * (excess + 2.0)).sqrt()


def _compute_acosh(excess: Tensor) -> RowResult:
    """The derivative is 1 / sinh d."""
    smallest = _find_smallest_excess(excess)
    clamped = excess.clamp(min=smallest)
    sinh = _measure_sinh(clamped)
    distance = (clamped + sinh).log1p_()  # asinh(sinh) takes ten times as long
    return RowResult(distance, sinh.reciprocal_().masked_fill_(excess < smallest, 0.0))


def _compute_acosh_plainly(excess: Tensor) -> Tensor:
    excess = excess.clamp(min=_find_smallest_excess(excess))
    return (excess + _measure_sinh(excess)).log1p()


def _find_smallest_excess(excess: Tensor) -> float:
    """As in `safe_sqrt`."""
    return torch.finfo(excess.dtype).eps ** 2


def measure_time(u: Tensor) -> Tensor:
    """u_0 = sqrt(1 + |u|^2) of each row, (B,)."""
    time: Tensor = (1.0 + torch.linalg.vecdot(u, u)).sqrt()
    return time


def limit_near(time: Tensor) -> Tensor:
    """The m below which pairs of a row (B,) with this u_0 are computed from differences, (B, 1)."""
    limit = near_limit(0.5 * time.square(), time.dtype)
    assert isinstance(limit, Tensor)
    return limit[:, None]


def multiply_points(u: Tensor, v: Tensor) -> Tensor:
    """m = u_0 v_0 - u.v - 1 of all pairs (B, R) from one product."""
    u_time = measure_time(u)
    v_time = u_time if v is u else measure_time(v)
    return torch.addmm(u_time[:, None] * v_time - 1.0, u, v.T, alpha=-1.0).clamp(min=0.0)


def measure_excess(u: Tensor, v: Tensor, pair_filter: PairFilter | None = None) -> Tensor:
    """m of all pairs (B, R), with a graph; pairs that nearly coincide as in `kinfold.pairs.near_pairs`."""
    excess = multiply_points(u, v)
    if is_transformed():
        return excess
    limit = limit_near(measure_time(u.detach()))
    i, j = list_near(excess.detach(), limit, pair_filter)
    if i.shape[0] == 0:
        return excess
    if too_many_to_gather(i, u, excess):
        left = u.double()
        exact = multiply_points(left, left if v is u else v.double())
        return torch.where(excess.detach() < limit, exact.to(u.dtype), excess)
    return excess.index_put_((i, j), gather_minkowski(u, v, i, j))


def add_excess_gradients(
    u: Tensor, v: Tensor, outer: Tensor, u_gradient: Tensor | None, v_gradient: Tensor | None
) -> None:
    """Add the gradients of sum_ij outer_ij m_ij: dm/du = u v_0 / u_0 - v, and the same for v.

    The two gradients may be one tensor, if rows and columns are the same points.
    """
    u_time, v_time = measure_time(u), measure_time(v)
    if u_gradient is not None and u_gradient is v_gradient:
        outer, v_gradient = outer + outer.T, None
    if u_gradient is not None:
        u_gradient.addmm_(outer, v, alpha=-1.0)
        u_gradient.addcmul_((torch.mv(outer, v_time) / u_time)[:, None], u)
    if v_gradient is not None:
        v_gradient.addmm_(outer.T, u, alpha=-1.0)
        v_gradient.addcmul_((torch.mv(outer.T, u_time) / v_time)[:, None], v)
