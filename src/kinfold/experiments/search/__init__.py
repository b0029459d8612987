"""Hyper-parameter search: which values may be tried, and the trials."""

from kinfold.experiments.search.space import Categorical, Range, list_corners, parse_search_space
from kinfold.experiments.search.study import Study, Trial

__all__ = ["Categorical", "Range", "Study", "Trial", "list_corners", "parse_search_space"]
