"""A scikit-learn estimator that learns a space from arrays; the one room that needs scikit-learn."""

from kinfold.optional import import_optional

import_optional("sklearn", "scikit-learn", "learner", "kinfold.MetricLearner")

from kinfold.learner.estimator import MetricLearner  # noqa: E402  (only now is it known that scikit-learn is there)

__all__ = ["MetricLearner"]
