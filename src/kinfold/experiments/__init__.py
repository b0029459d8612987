"""Comparisons that anyone can repeat: methods x data sets x folds x seeds, and what can be concluded from them.

suite (what is compared) -> schedule (searches, then repeats) -> workers (processes, or a Ray cluster) -> run folders
and records, and after the last decision the held-out test classes -> results, with paired tests.
"""

from kinfold.experiments.bench import Interrupted, State, run_bench
from kinfold.experiments.repeat import Repeat, open_run
from kinfold.experiments.results import Bench
from kinfold.experiments.statistics import (
    Interval,
    MethodComparison,
    adjust_holm,
    compare_methods,
    compute_interval,
    paired_test,
)
from kinfold.experiments.suite import Suite, read_suite
from kinfold.experiments.workers.processes import Processes

__all__ = [
    "Bench",
    "Interrupted",
    "Interval",
    "MethodComparison",
    "Processes",
    "Repeat",
    "State",
    "Suite",
    "adjust_holm",
    "compare_methods",
    "compute_interval",
    "open_run",
    "paired_test",
    "read_suite",
    "run_bench",
]
