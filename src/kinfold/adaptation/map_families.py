"""Many linear maps of the same rows for the price of a few: what they share is computed once.

The maps of one kind differ in shrinkage and dimensions only, which change the eigenvalues of a covariance and not its
eigenvectors. So rows are turned into the eigenvectors once, and each map scales the columns. A map is computed up to a
rotation of its outputs, which changes no distance, no dot product and no cosine.
"""

from functools import cached_property

import torch
from torch import Tensor

from kinfold.adaptation.candidates import LinearCandidate
from kinfold.models.linear_maps import POWERS, LinearMap, LinearMapFitter, count_dimensions
from kinfold.models.moments import Moments

_RANK_TOLERANCE = 2.5e-13  # of eigenvalues; float32 features have no more directions


class MapFamilies:
    """Maps rows with linear candidates that are fitted to the same moments.

    Args:
        moments: Of the rows that the candidates are fitted to, with classes.
        rows: The rows to map, (N, width).
    """

    def __init__(self, moments: Moments, rows: Tensor) -> None:
        self.moments, self.rows = moments, rows
        self.fitter = LinearMapFitter(moments)

    def embed(self, candidate: LinearCandidate) -> Tensor:
        """Map the rows, (N, dim) float32; a rotation of what `LinearMapFitter.fit` returns."""
        kind, dim, shrinkage = candidate.kind, candidate.dim, candidate.shrinkage or 0.0
        if kind is None:
            return self.rows
        if kind == "pca" and dim is None:
            return self._centered.float()
        if kind in POWERS:
            if not shrinkage:
                rank = count_rank(self.fitter)
                dim = rank if dim is None else min(dim, rank)
            scale = self.fitter.total.shrink(shrinkage)[:dim] ** (-POWERS[kind] / 2)
            return (self._principal[:, :dim] * scale).float()
        if dim is not None:
            return fit_candidate(self.fitter, candidate)(self.rows.double()).float()
        whitened = self._within * self.fitter.within.shrink(shrinkage) ** -0.5
        if kind == "within-whiten" or (kind == "lda" and count_dimensions(self.moments, "lda") == self.moments.width):
            return whitened.float()  # discriminants in all dimensions are a rotation
        return (self._weight_directions if kind == "plda" else self._keep_discriminants)(whitened, shrinkage).float()

    @cached_property
    def _centered(self) -> Tensor:
        return self.rows.double() - self.moments.mean

    @cached_property
    def _principal(self) -> Tensor:
        """Rows in the principal directions, (N, width) float64."""
        return self._centered @ self.fitter.total.directions.T

    @cached_property
    def _within(self) -> Tensor:
        """Rows in the principal directions of the variation within classes, (N, width) float64."""
        return self._centered @ self.fitter.within.directions.T

    @cached_property
    def _class_means(self) -> Tensor:
        """Weighted class means in the directions of `_within`, (width, C); times its transpose is the covariance."""
        return self.fitter.within.directions @ self.moments.weighted_class_means().T

    def _split_between(self, shrinkage: float) -> tuple[Tensor, Tensor]:
        """Return d (width,) and G (width, C): the whitened covariance of the class means is diag(d) + G G^T."""
        variances = self.fitter.within.shrink(shrinkage)
        shift = shrinkage * self._class_means.square().sum() / self.moments.width
        means = self._class_means * (variances**-0.5)[:, None] * (1 - shrinkage) ** 0.5
        return shift / variances, means

    def _weight_directions(self, whitened: Tensor, shrinkage: float) -> Tensor:
        """Probabilistic LDA up to a rotation, M (M + I)^-1 z = z - (M + I)^-1 z with M = diag(d) + G G^T."""
        diagonal, means = self._split_between(shrinkage)
        diagonal = diagonal + 1.0
        classes = means.shape[1]
        if classes < len(diagonal):  # the identity of Woodbury: solve in the space of classes
            weighted = means / diagonal[:, None]
            small = torch.eye(classes, dtype=torch.float64) + means.T @ weighted
            inner = torch.cholesky_solve((whitened @ weighted).T, torch.linalg.cholesky(small)).T
            return whitened - (whitened / diagonal - inner @ weighted.T)
        factor = torch.linalg.cholesky(torch.diag(diagonal) + means @ means.T)
        return whitened - torch.cholesky_solve(whitened.T, factor).T

    def _keep_discriminants(self, whitened: Tensor, shrinkage: float) -> Tensor:
        """LDA: the leading directions of diag(d) + G G^T, one less than there are classes."""
        diagonal, means = self._split_between(shrinkage)
        compared = torch.diag(diagonal) + means @ means.T
        return whitened.float() @ find_leading(compared, count_dimensions(self.moments, "lda"))


def find_leading(matrix: Tensor, count: int) -> Tensor:
    """Return the leading eigenvectors of a symmetric matrix as columns, (width, count) float32."""
    from scipy.linalg import eigh  # not at the top: `import kinfold` stays fast

    width = len(matrix)
    # leading directions need no more digits than those of float32
    directions = eigh(matrix.float().numpy(), subset_by_index=[width - count, width - 1])[1]
    if directions.shape[1] != count:  # LAPACK gives up without an error where eigenvalues differ by many orders
        directions = torch.linalg.eigh(matrix)[1][:, -count:].numpy()
    return torch.from_numpy(directions).float()


def fit_candidate(fitter: LinearMapFitter, candidate: LinearCandidate) -> LinearMap:
    """Fit the map of a candidate, in no more dimensions than there are directions in which the rows vary."""
    kind, dim = candidate.kind, candidate.dim
    assert kind is not None
    if kind == "within-whiten" and dim is None:  # any rotation has the same distances
        root = fitter.within.inverse_root(candidate.shrinkage or 0.0)
        return LinearMap(root, -root @ fitter.moments.mean, fitter.within.values)
    if kind in POWERS and not candidate.shrinkage:
        rank = count_rank(fitter)
        dim = rank if dim is None else min(dim, rank)
    dim = None if dim is None else min(dim, count_dimensions(fitter.moments, kind))
    return fitter.fit(kind, dim, candidate.shrinkage)


def count_rank(fitter: LinearMapFitter) -> int:
    """Return the number of directions in which rows vary by more than rounding."""
    values = fitter.total.values
    return max(1, int((values > values[0] * _RANK_TOLERANCE).sum()))
