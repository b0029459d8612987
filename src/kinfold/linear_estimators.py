"""`Whitening` and `LDA`: closed-form linear embeddings as scikit-learn estimators, beside `MetricLearner`."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from kinfold.models.linear_maps import SUPERVISED, LinearMap, count_dimensions, fit_linear_map
from kinfold.models.moments import Moments
from kinfold.optional import import_optional
from kinfold.pairs import normalize as normalize_rows

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    import_optional("sklearn", "scikit-learn", "learner", "kinfold.Whitening and kinfold.LDA")  # says what to install
    raise

__all__ = ["LDA", "Whitening"]

Array = np.ndarray[Any, Any]
_DTYPES = [np.float64, np.float32]


class _LinearEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share: rows pass the fitted map."""

    map_: Any
    normalize: Any

    def transform(self, X: Any) -> Array:  # noqa: N803
        """Map rows.

        Args:
            X: Rows, (n, d).

        Returns:
            (n, dim), float32 for float32 rows and else float64, of length one with `normalize`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=_DTYPES, reset=False)  # noqa: N806
        rows: Tensor = self.map_(_to_tensor(X).double())
        embeddings: Array = (normalize_rows(rows) if self.normalize else rows).numpy().astype(X.dtype)
        return embeddings

    def _set_map(self, linear_map: LinearMap) -> Self:
        self.map_ = linear_map
        self.components_ = linear_map.weight.numpy()
        self.values_ = linear_map.values.numpy()
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Whitening(_LinearEstimator):
    """Center rows and divide their principal components by a power of their deviations. No labels are needed.

    Moments are summed in float64 over chunks of rows; `partial_fit` adds more rows.

    Args:
        kind: "pca" divides by nothing, "half-whiten" by the square root of the standard deviation, "whiten" by the
            standard deviation. Half is usually best for retrieval: it lowers dominant directions and raises noise less.
        dim: Dimensions to keep, the largest variances first; all if None.
        shrinkage: Share of the covariance, 0 to 1, that is replaced by a multiple of the identity.
        normalize: Scale outputs to length one, so that any neighbor search compares by cosine.

    Attributes:
        components_: The matrix of the map, (dim, n_features_in_).
        mean_: Mean of the rows.
        values_: Variance of each direction that was kept.
        map_: The map as a `kinfold.models.linear_maps.LinearMap`.
        n_features_in_: Columns of X.

    Examples:
        >>> from sklearn.datasets import load_wine
        >>> import kinfold
        >>> X, y = load_wine(return_X_y=True)
        >>> kinfold.Whitening("whiten", dim=4, shrinkage=0.1).fit(X).transform(X).shape
        (178, 4)
    """

    def __init__(
        self, kind: str = "half-whiten", dim: int | None = None, shrinkage: float = 0.0, normalize: bool = True
    ) -> None:
        self.kind = kind
        self.dim = dim
        self.shrinkage = shrinkage
        self.normalize = normalize

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Compute the map of rows.

        Args:
            X: Rows, (n, d).
            y: Not used.

        Returns:
            The estimator itself.

        Raises:
            ValueError: A parameter is wrong, or the rows vary in too few directions.
        """
        self._moments: Moments | None = None
        return self._add(validate_data(self, X, dtype=_DTYPES, ensure_min_samples=2))

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Add rows to those of earlier calls and compute the map of all; see `fit`."""
        is_first = getattr(self, "_moments", None) is None
        return self._add(validate_data(self, X, dtype=_DTYPES, ensure_min_samples=2 if is_first else 1, reset=is_first))

    def _add(self, X: Array) -> Self:  # noqa: N803
        if self.kind not in ("pca", "half-whiten", "whiten"):
            raise ValueError(f"kind is 'pca', 'half-whiten' or 'whiten', got {self.kind!r}; kinfold.LDA needs labels")
        self._moments = getattr(self, "_moments", None) or Moments(X.shape[1])
        self._moments.update(_to_tensor(X))
        self.mean_ = self._moments.mean.numpy()
        kind: Any = self.kind
        return self._set_map(fit_linear_map(self._moments, kind, self.dim, self.shrinkage))


class LDA(_LinearEstimator):
    """Divide rows by their variation within classes. Needs labels, and often beats a trained head.

    Args:
        kind: "within-whiten" keeps all directions, those with the largest ratio of total to within-class variance first
            (within-class covariance normalization). "lda" keeps the directions in which the class means differ, at most
            classes - 1, as `sklearn.discriminant_analysis.LinearDiscriminantAnalysis(solver="eigen")`. For classes that
            are not in `fit`, "within-whiten" is better unless there are many more classes than dimensions. "plda" keeps
            all directions, weighted by how far classes differ in them; for more classes than columns.
        dim: Dimensions to keep; all that the kind has if None. It is lowered to their number.
        shrinkage: Share of the within-class covariance, 0 to 1, that is replaced by a multiple of the identity. With
            less rows than columns it must be greater than 0.
        normalize: Scale outputs to length one, so that any neighbor search compares by cosine.

    Attributes:
        components_: The matrix of the map, (dim, n_features_in_).
        mean_: Mean of the rows.
        values_: The ratio of each direction that was kept.
        map_: The map as a `kinfold.models.linear_maps.LinearMap`.
        classes_: The distinct labels.
        n_features_in_: Columns of X.

    Examples:
        >>> from sklearn.datasets import load_wine
        >>> import kinfold
        >>> X, y = load_wine(return_X_y=True)
        >>> kinfold.LDA("lda").fit(X, y).transform(X).shape
        (178, 2)
    """

    def __init__(
        self,
        kind: str = "within-whiten",
        dim: int | None = None,
        shrinkage: float = 0.5,
        normalize: bool = True,
    ) -> None:
        self.kind = kind
        self.dim = dim
        self.shrinkage = shrinkage
        self.normalize = normalize

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Compute the map of labeled rows.

        Args:
            X: Rows, (n, d).
            y: The class of each row, strings or integers.

        Returns:
            The estimator itself.

        Raises:
            ValueError: A parameter is wrong, there is one class only, or no class has two different rows.
        """
        if self.kind not in SUPERVISED:
            raise ValueError(
                f"kind is 'within-whiten', 'lda' or 'plda', got {self.kind!r}; kinfold.Whitening has the others"
            )
        X, y = validate_data(self, X, y, dtype=_DTYPES, ensure_min_samples=2)  # noqa: N806
        if y.dtype.kind not in "iubUS":
            check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"LDA separates classes, and y has only one class: {str(self.classes_[0])!r}")
        moments = Moments(X.shape[1], len(self.classes_))
        moments.update(_to_tensor(X), torch.from_numpy(labels.astype(np.int64)))
        self.mean_ = moments.mean.numpy()
        kind: Any = self.kind
        dim = None if self.dim is None else min(self.dim, count_dimensions(moments, kind))
        return self._set_map(fit_linear_map(moments, kind, dim, self.shrinkage))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _to_tensor(rows: Array) -> Tensor:
    return torch.from_numpy(np.require(rows, requirements=["C", "W"]))  # torch takes no read-only memory
