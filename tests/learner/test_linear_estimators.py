"""`Whitening` and `LDA` as scikit-learn estimators."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import kinfold


@parametrize_with_checks(
    [kinfold.Whitening(shrinkage=0.1), kinfold.LDA(), kinfold.LDA("lda", shrinkage=0.3, normalize=False)]
)
def test_estimators_pass_the_checks_of_sklearn(estimator, check):
    check(estimator)


def test_whitening_in_parts_is_whitening_at_once_and_that_of_sklearn():
    rows, _ = load_wine(return_X_y=True)
    whole = kinfold.Whitening("whiten", dim=5, normalize=False).fit(rows)
    parts = kinfold.Whitening("whiten", dim=5, normalize=False)
    for part in np.array_split(rows, 4):
        parts.partial_fit(part)
    assert np.allclose(parts.components_, whole.components_, rtol=1e-6)
    reference = PCA(5, whiten=True, svd_solver="full").fit_transform(rows) * np.sqrt(len(rows) / (len(rows) - 1))
    outputs = whole.transform(rows)
    assert np.allclose(outputs, reference * np.sign((outputs * reference).sum(axis=0)), rtol=1e-6, atol=1e-6)


def test_a_new_fit_forgets_earlier_rows():
    rows, _ = load_wine(return_X_y=True)
    first = kinfold.Whitening(dim=3).fit(rows).fit(rows[:90])
    assert np.allclose(first.components_, kinfold.Whitening(dim=3).fit(rows[:90]).components_)


def test_lda_is_that_of_sklearn_and_lowers_dim_to_what_classes_allow():
    rows, labels = load_wine(return_X_y=True)
    outputs = kinfold.LDA("lda", dim=64, shrinkage=0.2, normalize=False).fit(rows, labels).transform(rows)
    reference = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.2).fit(rows, labels).transform(rows)
    reference -= reference.mean(axis=0)
    assert outputs.shape == (178, 2)
    assert np.allclose(outputs, reference * np.sign((outputs * reference).sum(axis=0)), rtol=1e-6, atol=1e-6)


def test_shrinkage_is_searched_in_a_pipeline():
    rows, labels = load_wine(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), kinfold.LDA(), LinearDiscriminantAnalysis()),
        {"lda__shrinkage": [0.1, 0.9], "lda__kind": ["lda", "within-whiten"]},
        cv=2,
    )
    assert search.fit(rows, [f"wine {label}" for label in labels]).best_score_ > 0.9


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (kinfold.Whitening("lda"), "kinfold.LDA needs labels"),
        (kinfold.LDA("whiten"), "kinfold.Whitening has the others"),
    ],
)
def test_the_other_kind_is_named(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(np.eye(4), [0, 0, 1, 1])
