"""Linear maps that are computed from the moments of features: principal components, whitening, LDA.

Each is exact in float64. `Spectrum` diagonalizes a covariance once; maps of any power, shrinkage and dimension follow
from it without another decomposition.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from kinfold import registry
from kinfold.models.moments import Moments

LinearMapKind = Literal["pca", "half-whiten", "whiten", "within-whiten", "lda", "plda"]
POWERS: dict[str, float] = {"pca": 0.0, "half-whiten": 0.5, "whiten": 1.0}
SUPERVISED = ("within-whiten", "lda", "plda")  # need labels
# Shrinkage where none is given. Within-class covariances of few classes are singular or nearly so; on the features of
# CUB and of the flowers every shrinkage from 0.3 to 0.7 is within 0.7 points of the best recall@1 of within-whiten
# (measured on their test classes, see docs/adapt.md).
DEFAULT_SHRINKAGE = dict.fromkeys(SUPERVISED, 0.5)


@dataclass(frozen=True, eq=False)
class LinearMap:
    """The map x -> weight x + bias, float64.

    Attributes:
        weight: (dim, width).
        bias: (dim,); the mean of the features is mapped to zero.
        values: What each dimension was ordered by, (dim,): variance, or ratio of covariances.
    """

    weight: Tensor
    bias: Tensor
    values: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows (N, width) to (N, dim), in the precision of the rows."""
        return rows @ self.weight.to(rows).T + self.bias.to(rows)

    def scale(self, factor: float) -> "LinearMap":
        """Return the map with its outputs multiplied by a number."""
        return LinearMap(self.weight * factor, self.bias * factor, self.values)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues and eigenvectors of a covariance.

    Attributes:
        values: In descending order, not negative, (width,).
        directions: The eigenvectors as rows, (width, width).
    """

    values: Tensor
    directions: Tensor

    @staticmethod
    def of(covariance: Tensor) -> "Spectrum":
        """Diagonalize a symmetric matrix (width, width)."""
        values, columns = torch.linalg.eigh(covariance)
        return Spectrum(values.flip(0).clamp_min(0), columns.flip(1).T)

    def shrink(self, shrinkage: float) -> Tensor:
        """Return the eigenvalues of (1 - s) C + s (trace C / width) I."""
        return (1 - shrinkage) * self.values + shrinkage * self.values.mean()

    def inverse_root(self, shrinkage: float, power: float = 1.0) -> Tensor:
        """Return the matrix R with R C_s R^T = I for power 1, (width, width).

        Row i is direction i divided by the standard deviation along it, to the power.

        Raises:
            ValueError: The covariance is singular and nothing is added to it.
        """
        values = self.shrink(shrinkage)
        noise = len(values) * torch.finfo(torch.float64).eps
        if values[0] <= 0:
            raise ValueError("all rows are equal, or equal within each class: there is nothing to whiten")
        if power > 0 and values[-1] <= values[0] * noise:
            rank = int((values > values[0] * noise).sum())
            raise ValueError(
                f"the covariance of {len(values)} features has rank {rank}, and a singular one cannot be inverted: "
                "give shrinkage > 0, fewer dimensions, or more rows"
            )
        return self.directions * (values ** (-power / 2))[:, None]


def fit_linear_map(
    moments: Moments, kind: LinearMapKind, dim: int | None = None, shrinkage: float | None = None
) -> LinearMap:
    """Compute a linear map.

    With C the covariance of all rows, W that within classes, B = C - W that of the class means, and
    X_s = (1 - s) X + s (trace X / width) I:

    | kind | map of x - mean | ordered by |
    |---|---|---|
    | pca | V^T, V the eigenvectors of C | variance |
    | half-whiten, whiten | D_s^(-1/4) V^T, D_s^(-1/2) V^T, D_s the eigenvalues of C_s | variance |
    | within-whiten | U^T with U^T W_s U = I and U^T C U diagonal | ratio of total to within-class variance |
    | lda | U^T with U^T W_s U = I and U^T (C_s - W_s) U = L diagonal | ratio of between- to within-class variance |
    | plda | L (L + I)^-1 U^T with U and L of lda | the same ratio |

    within-whiten in all its dimensions is W_s^(-1/2) up to a rotation, which no distance sees. It keeps directions in
    which the training classes do not differ, and new classes may. LDA leaves them out: it has at most C - 1 dimensions
    for C classes, and is what scikit-learn's `LinearDiscriminantAnalysis(solver="eigen")` computes. plda, the mean of
    the class center given one of its rows in the two-covariance model of probabilistic LDA (Ioffe, ECCV 2006), has all
    directions again and weights them by how far classes differ there; it is best with many more classes than features.

    Args:
        moments: Of the training rows; with classes for within-whiten, lda and plda.
        kind: One of the kinds above.
        dim: Dimensions to keep; all if left out, for lda classes - 1.
        shrinkage: s from 0 to 1; 0 if left out, but 0.5 for within-whiten, lda and plda.

    Returns:
        The map, its rows with their largest entry positive, so that equal moments give equal maps.

    Raises:
        ValueError: An option is wrong, or there are too few rows or classes.

    Examples:
        >>> from kinfold.models.moments import compute_moments
        >>> rows = torch.tensor([[3.0, 1.0], [-3.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
        >>> fit_linear_map(compute_moments(rows), "pca", dim=1)(rows).flatten().tolist()
        [3.0, -3.0, 0.0, 0.0]
    """
    return LinearMapFitter(moments).fit(kind, dim, shrinkage)


class LinearMapFitter:
    """Computes several linear maps of the same rows; each covariance is diagonalized once.

    Args:
        moments: Of the training rows.
    """

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        self._discriminants: dict[float, Spectrum] = {}  # by shrinkage, in rows that are whitened within classes

    @cached_property
    def total(self) -> Spectrum:
        """Spectrum of the covariance of all rows."""
        return Spectrum.of(self.moments.total_covariance())

    @cached_property
    def within(self) -> Spectrum:
        """Spectrum of the covariance within classes."""
        return Spectrum.of(self.moments.within_covariance())

    def fit(self, kind: LinearMapKind, dim: int | None = None, shrinkage: float | None = None) -> LinearMap:
        """Compute a map; see `fit_linear_map`."""
        moments = self.moments
        registry.check_known("linear map", kind, get_args(LinearMapKind))
        shrinkage = DEFAULT_SHRINKAGE.get(kind, 0.0) if shrinkage is None else shrinkage
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"shrinkage lies from 0 to 1, got {shrinkage}")
        if kind == "pca" and shrinkage:
            raise ValueError("pca divides by no variance, so that shrinkage would be ignored; leave it out")
        limit = count_dimensions(moments, kind)
        dim = limit if dim is None else dim
        if not 1 <= dim <= limit:
            few = (
                f"{_count_classes(moments)} classes" if kind == "lda" and limit < moments.width else f"{limit} features"
            )
            raise ValueError(f"{few} have no {dim} dimensions of {kind}; choose dim from 1 to {limit}")
        fit = self._fit_supervised if kind in SUPERVISED else self._fit_principal
        weight, values = fit(kind, dim, shrinkage)
        signs = weight.gather(1, weight.abs().argmax(dim=1, keepdim=True)).sign()
        weight = weight * torch.where(signs == 0, torch.ones_like(signs), signs)
        return LinearMap(weight, -weight @ moments.mean, values)

    def _fit_principal(self, kind: str, dim: int, shrinkage: float) -> tuple[Tensor, Tensor]:
        weight, values = self.total.directions[:dim], self.total.values[:dim]
        if POWERS[kind]:
            shrunk = self.total.shrink(shrinkage)
            _check_rank(shrunk, dim, self.moments.count)
            weight = weight * (shrunk[:dim] ** (-POWERS[kind] / 2))[:, None]
        return weight, values

    def _fit_supervised(self, kind: str, dim: int, shrinkage: float) -> tuple[Tensor, Tensor]:
        moments, classes = self.moments, _count_classes(self.moments)
        if classes < 2:
            raise ValueError(f"{kind} compares classes, and there are {classes}; it needs two")
        if moments.count <= classes:
            raise ValueError(f"every class has one row, so that {kind} sees no variation within classes; give more")
        root = self.within.inverse_root(shrinkage)  # (width, width): rows are whitened within classes by root x
        if kind == "within-whiten":
            spectrum = Spectrum.of(root @ moments.total_covariance() @ root.T)
        else:
            spectrum = self._find_discriminants(root, shrinkage)
        weight, values = spectrum.directions[:dim] @ root, spectrum.values[:dim]
        return (weight * (values / (values + 1))[:, None] if kind == "plda" else weight), values

    def _find_discriminants(self, root: Tensor, shrinkage: float) -> Spectrum:
        """Diagonalize the covariance between classes; lda and plda share it."""
        if shrinkage not in self._discriminants:
            between = self.moments.between_covariance()
            # scikit-learn shrinks the total covariance too, which adds a multiple of the identity
            shift = shrinkage * between.diagonal().mean()
            compared = (1 - shrinkage) * between + shift * torch.eye(self.moments.width, dtype=torch.float64)
            self._discriminants[shrinkage] = Spectrum.of(root @ compared @ root.T)
        return self._discriminants[shrinkage]


def count_dimensions(moments: Moments, kind: LinearMapKind) -> int:
    """Return how many dimensions a kind of map can have: for lda classes - 1 at most, else the width."""
    return min(moments.width, max(1, _count_classes(moments) - 1)) if kind == "lda" else moments.width


def _count_classes(moments: Moments) -> int:
    if not moments.classes:
        raise ValueError("LDA and within-class whitening need labels")
    return int((moments.class_counts > 0).sum())


def _check_rank(values: Tensor, dim: int, count: int) -> None:
    rank = int((values > values[0] * len(values) * torch.finfo(torch.float64).eps).sum())
    if dim > rank:
        raise ValueError(
            f"the {count} features vary in {rank} directions only, too few for dim={dim}; choose dim <= {rank}, give "
            "shrinkage > 0, or give more features"
        )
