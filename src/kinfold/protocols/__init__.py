"""Folds, repeats, intervals, comparisons and searches: how a difference between two methods is shown to be real.

Which classes train, validate and test in a fold is decided in kinfold.data.folds; kinfold.bench runs whole suites.
"""

from kinfold.data.folds import folded, folds
from kinfold.protocols.repeat import Repeat, opened
from kinfold.protocols.statistics import Comparisons, Interval, compare, holm, interval, paired

__all__ = ["Comparisons", "Interval", "Repeat", "compare", "folded", "folds", "holm", "interval", "opened", "paired"]
