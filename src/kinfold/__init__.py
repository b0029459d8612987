"""kinfold: learn an embedding in which things of one kind lie together, and measure honestly how well that works.

Rooms (`kinfold.losses`, `kinfold.miners`, `kinfold.pairs`, ...) are loaded when they are first used.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from kinfold import registry

if TYPE_CHECKING:
    from kinfold import data as data
    from kinfold import dro as dro
    from kinfold import losses as losses
    from kinfold import metrics as metrics
    from kinfold import miners as miners
    from kinfold import pairs as pairs
    from kinfold import samplers as samplers

__version__ = "0.1.0"

_ROOMS = ("data", "dro", "losses", "metrics", "miners", "pairs", "samplers")

list = registry.names

__all__ = ["__version__", "data", "dro", "list", "losses", "metrics", "miners", "pairs", "registry", "samplers"]


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return importlib.import_module(f"kinfold.{name}")
    raise AttributeError(f"module 'kinfold' has no attribute {name!r}")


def __dir__() -> "builtins_list[str]":
    return sorted(__all__)


if TYPE_CHECKING:
    from builtins import list as builtins_list
