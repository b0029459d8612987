"""scikit-learn's own checks of what an estimator must do, for every kind of loss and head."""

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import kinfold

# few steps: the checks are about conduct, not about what is learned
LEARNERS = [
    kinfold.MetricLearner(steps=5),
    kinfold.MetricLearner(loss="proxy-anchor", steps=5),
    kinfold.MetricLearner(loss="n-pair", head="mlp", dim=4, steps=5),
]


@parametrize_with_checks(LEARNERS)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_defaults_pass_every_scikit_learn_check():
    results = check_estimator(kinfold.MetricLearner(), on_skip=None)
    assert len(results) >= 40
    # it wants SCIPY_ARRAY_API in the environment
    assert {result["check_name"] for result in results if result["status"] != "passed"} <= {"check_array_api_input"}
