"""kinfold: learn an embedding in which things of one kind lie together, and measure honestly how well that works.

Rooms (`kinfold.losses`, `kinfold.miners`, `kinfold.pairs`, ...) are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kinfold import registry

if TYPE_CHECKING:
    from kinfold import data as data
    from kinfold import dro as dro
    from kinfold import losses as losses
    from kinfold import metrics as metrics
    from kinfold import miners as miners
    from kinfold import models as models
    from kinfold import pairs as pairs
    from kinfold import samplers as samplers
    from kinfold import training as training
    from kinfold.learner import MetricLearner as MetricLearner
    from kinfold.training.run import train as train

__version__ = "0.1.0"

_ROOMS = ("data", "dro", "losses", "metrics", "miners", "models", "pairs", "samplers", "training")
# what is used so often that it stands at the door
_DOOR = {"MetricLearner": "kinfold.learner", "train": "kinfold.training.run"}

list = registry.names
register = registry.register

__all__ = [
    "MetricLearner",
    "__version__",
    "data",
    "dro",
    "list",
    "losses",
    "metrics",
    "miners",
    "models",
    "pairs",
    "register",
    "registry",
    "samplers",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"kinfold.{name}")
    if name in _DOOR:
        return getattr(importlib.import_module(_DOOR[name]), name)
    raise AttributeError(f"module 'kinfold' has no attribute {name!r}")


def __dir__() -> "builtins_list[str]":
    return sorted(__all__)


if TYPE_CHECKING:
    from builtins import list as builtins_list
