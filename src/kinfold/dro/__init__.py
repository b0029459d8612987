"""Distributionally robust weighting: which losses count, and how much, when the worst case over a set is taken."""

from kinfold.dro.average import Average
from kinfold.dro.chi_square import ChiSquare
from kinfold.dro.kl import KL
from kinfold.dro.kl_ball import KLBall
from kinfold.dro.robust import Robust
from kinfold.dro.simplex import Simplex
from kinfold.dro.top_k import TopK
from kinfold.dro.uncertainty import UncertaintySet

__all__ = ["KL", "Average", "ChiSquare", "KLBall", "Robust", "Simplex", "TopK", "UncertaintySet"]
