"""Distributionally robust optimization (DRO): weight pair losses by the worst case over an uncertainty set.

`Robust` combines a pair loss, an uncertainty set and a grouping of pairs into a loss. An uncertainty set can also be
used alone: `weights(losses, mask)` and `value(losses, mask)`.
"""

from kinfold.dro.average import Average
from kinfold.dro.chi_square import ChiSquare
from kinfold.dro.kl import KL
from kinfold.dro.kl_ball import KLBall
from kinfold.dro.optimistic_kl import OptimisticKL
from kinfold.dro.robust import Robust
from kinfold.dro.simplex import Simplex
from kinfold.dro.top_k import TopK
from kinfold.dro.trim import Trim
from kinfold.dro.uncertainty import UncertaintySet

__all__ = [
    "KL",
    "Average",
    "ChiSquare",
    "KLBall",
    "OptimisticKL",
    "Robust",
    "Simplex",
    "TopK",
    "Trim",
    "UncertaintySet",
]
