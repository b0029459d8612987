"""kinfold: deep metric learning. Learn an embedding in which items of one class lie close together, and evaluate it.

Subpackages (`kinfold.losses`, `kinfold.miners`, `kinfold.metrics`, ...) are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kinfold import registry

if TYPE_CHECKING:
    from builtins import list as builtins_list

    from kinfold import adaptation as adaptation
    from kinfold import audit as audit
    from kinfold import board as board
    from kinfold import calibration as calibration
    from kinfold import compat as compat
    from kinfold import data as data
    from kinfold import distributed as distributed
    from kinfold import dro as dro
    from kinfold import embedding as embedding
    from kinfold import experiments as experiments
    from kinfold import gallery as gallery
    from kinfold import losses as losses
    from kinfold import metrics as metrics
    from kinfold import miners as miners
    from kinfold import models as models
    from kinfold import pairs as pairs
    from kinfold import papers as papers
    from kinfold import recipes as recipes
    from kinfold import report as report
    from kinfold import samplers as samplers
    from kinfold import testing as testing
    from kinfold import training as training
    from kinfold.adaptation import adapt as adapt
    from kinfold.gallery import Gallery as Gallery
    from kinfold.learner import MetricLearner as MetricLearner
    from kinfold.linear_estimators import LDA as LDA
    from kinfold.linear_estimators import Whitening as Whitening
    from kinfold.training import Run as Run
    from kinfold.training import train as train

__version__ = "0.2.0"

# name: module that it is imported from on first use
_LAZY = {
    **{
        name: f"kinfold.{name}"
        for name in (
            "adaptation",
            "audit",
            "board",
            "calibration",
            "compat",
            "data",
            "distributed",
            "dro",
            "embedding",
            "experiments",
            "gallery",
            "losses",
            "metrics",
            "miners",
            "models",
            "pairs",
            "papers",
            "recipes",
            "report",
            "samplers",
            "testing",
            "training",
        )
    },
    "LDA": "kinfold.linear_estimators",
    "Gallery": "kinfold.gallery",
    "adapt": "kinfold.adaptation",
    "MetricLearner": "kinfold.learner",
    "Whitening": "kinfold.linear_estimators",
    "Run": "kinfold.training",
    "train": "kinfold.training",
}

list = registry.names
register = registry.register

__all__ = [
    "LDA",
    "Gallery",
    "MetricLearner",
    "Run",
    "Whitening",
    "__version__",
    "adapt",
    "adaptation",
    "audit",
    "board",
    "calibration",
    "compat",
    "data",
    "dro",
    "embedding",
    "experiments",
    "gallery",
    "list",
    "losses",
    "metrics",
    "miners",
    "models",
    "pairs",
    "papers",
    "register",
    "registry",
    "report",
    "samplers",
    "testing",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kinfold' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    return module if module.__name__ == f"kinfold.{name}" else getattr(module, name)


def __dir__() -> "builtins_list[str]":
    return sorted(__all__)
